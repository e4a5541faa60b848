//! What `runner verify --save` leaves for a report.

use crate::place::{Place, TINY, fixture};

/// Of the same build and device; another build's verification says nothing of these rows.
#[test]
fn the_report_says_what_was_verified_by_the_build_of_its_rows() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml", "--cell", "1"]).exits(0);
    let folder = place.results().to_str().expect("UTF-8").to_string();
    let golden = fixture("swiglu");
    let said = || {
        place.runner(&["report", &folder]).exits(0);
        let html = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
        html.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let intro = "Compared with reference values by the same build on the same device";
    assert!(!said().contains(intro));
    place
        .runner(&["verify", &golden, "--save", "nothing"])
        .exits(1)
        .says(&["nothing is not a results folder"]);
    let verify = ["verify", &golden, "--save", &folder, "--set", "checkpoint.level=1"];
    place.runner(&verify).exits(0).says(&["kept for the report"]);
    place.runner(&verify).exits(0);
    let report = said();
    assert!(report.contains(intro), "{report}");
    assert_eq!(report.matches("swiglu (with checkpoint.level=1: 5 of 5)").count(), 1, "once, the newest");
    let records = place.results().join("verify.json");
    let text = std::fs::read_to_string(&records).expect("records");
    let build = place.rows()[0]["environment"]["build"].as_str().expect("a build").to_string();
    std::fs::write(&records, text.replace(&build, "0123456789ab")).expect("writable");
    assert!(!said().contains(intro));
}
