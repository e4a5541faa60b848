//! report.html in a headless browser: tables sort and filter, and nothing is fetched.

use std::process::Command;

use crate::place::{Place, TINY};

/// The first of the usual browsers that starts; skips the test where there is none.
fn browser() -> Option<&'static str> {
    let starts =
        |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let found = ["chromium", "chromium-browser", "google-chrome", "chrome"].into_iter().find(starts);
    if found.is_none() {
        eprintln!("skipped: no headless browser is installed (chromium, google-chrome)");
    }
    found
}

#[test]
fn tables_sort_and_filter_in_a_browser() {
    let Some(browser) = browser() else { return };
    let place = Place::new(&TINY.replace("[2, 4]", "[2, 8, 4]"));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let html = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    assert!(!html.contains("href=\"http") && !html.contains(" src="), "it needs no other file");
    // What a reader does: sort by method, falling, then filter.
    let acts = r#"<script>
        const table = [...document.querySelectorAll(".table table")].find((table) => table.tBodies[0].rows.length > 5);
        const heading = [...table.tHead.rows[0].cells].find((cell) => cell.textContent === "method");
        const text = () => [...table.tBodies[0].rows].filter((row) => !row.hidden)
            .map((row) => row.cells[heading.cellIndex].textContent).join("|");
        heading.firstChild.click(); heading.firstChild.click();
        document.body.dataset.sorted = text();
        const filter = table.closest(".table").querySelector("input");
        filter.value = "LEVEL 0"; filter.oninput();
        document.body.dataset.filtered = text();
        document.body.dataset.contents = [...document.querySelectorAll("nav a")]
            .every((link) => document.querySelector(link.getAttribute("href")));
        document.body.dataset.hovers = document.querySelectorAll("svg title").length > 0;
        </script></body>"#;
    place.write("acted.html", &html.replace("</body>", acts));
    let file = format!("file://{}", place.path().join("acted.html").display());
    let out = Command::new("timeout")
        .args(["60", browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", &file])
        .env("HOME", place.path())
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&out.stdout).into_owned();
    for said in [
        r#"data-sorted="level 1|level 1|level 1|level 0|level 0|level 0""#,
        r#"data-filtered="level 0|level 0|level 0""#,
        r#"data-contents="true""#,
        r#"data-hovers="true""#,
    ] {
        assert!(dom.contains(said), "{said} is missing: {}", &dom[..dom.len().min(2000)]);
    }
}
