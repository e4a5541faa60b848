//! The written report as a whole.

use std::collections::BTreeMap;

use super::document::{Chart, Document, Element, Table};
use super::testing::{STUDY, bad_row, language_recipe, ok_row, recipe, rows, step_trace, write_traces};
use super::*;
use crate::common::Compute;
use crate::recipe::{Cell, Source};
use crate::row::Status;

/// The name and the bytes of every file that `write` returned.
fn written(recipe: &Recipe, rows: &[Row]) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = write(folder.path(), recipe, rows).expect("a report");
    let name =
        |path: &Path| path.strip_prefix(folder.path()).expect("a file in the folder").display().to_string();
    let read: BTreeMap<String, Vec<u8>> =
        files.iter().map(|path| (name(path), std::fs::read(path).expect("a written file"))).collect();
    let left = walkdir::WalkDir::new(folder.path())
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .count();
    assert_eq!(left, read.len(), "nothing but the report may be left in the folder");
    read
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let mut recipe = recipe(&format!(
        "{STUDY}published_source = \"an unnamed GPU\"\n[[report.published]]\n\
         cell = {{ \"train.batch_size\" = 32, \"checkpoint.level\" = 1 }}\n\
         forward = 0.008\nbackward = 0.023\nmemory = 0.442\n\
         [[report.published]]\n\
         cell = {{ \"train.batch_size\" = 32, \"checkpoint.level\" = 0 }}\n\
         backward = 0.018\nmemory = 0.535\n"
    ));
    recipe.question = "Is #strong[x] <b>bold</b> & $x^2$ or `code`?\u{fffe}\u{10ffff}".into();
    let mut rows = rows(&recipe);
    rows[12] = bad_row(&recipe.cells[12], Status::Oom, "needs *14* GiB of #8 GiB");
    rows.remove(14);
    // RUNNER_REPORT=folder cargo test the_same_rows: the report, to look at.
    if let Ok(keep) = std::env::var("RUNNER_REPORT") {
        write(Path::new(&keep), &recipe, &rows).expect("a report");
    }
    let (first, second) = (written(&recipe, &rows), written(&recipe, &rows));
    let files = ["table.csv", "table.parquet", "table.md", "table.tex", "report.html", "report.pdf"];
    for name in files.into_iter().chain(["charts/pareto.png", "charts/pareto.pdf"]) {
        assert!(first.contains_key(name), "{name} is missing among {:?}", first.keys());
    }
    for (name, bytes) in &first {
        assert!(!bytes.is_empty() && second[name] == *bytes, "{name} differs");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_html(folder.path(), &recipe, &rows).expect("a report");
    let alone = std::fs::read(folder.path().join("report.html")).expect("a written file");
    assert!(alone == first["report.html"], "the report of a run that goes on is the same");
    let html = String::from_utf8(first["report.html"].clone()).expect("UTF-8");
    for text in [
        "&lt;b>bold&lt;/b> &amp; $x^2$",
        "needs *14* GiB of #8 GiB",
        "an unnamed GPU",
        "0.442 GB",
        // 23 of 18 ms, 0.442 of 0.535 GB.
        "1.28x",
        "0.83x",
    ] {
        assert!(html.contains(text), "{text} is missing in the report");
    }
    assert!(!html.contains("href=\"http") && !html.contains(" src=") && html.contains("aria-sort"));
    assert!(first["report.pdf"].starts_with(b"%PDF-"));
}

#[test]
fn two_traced_strategies_are_one_picture() {
    let recipe = language_recipe("[grid]\n\"offload.strategy\" = [\"naive\", \"overlap\", \"function\"]\n");
    let rows = rows(&recipe);
    // RUNNER_TRACED=folder cargo test two_traced: the report, to look at.
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let folder = std::env::var("RUNNER_TRACED").map_or(temporary.path().to_path_buf(), PathBuf::from);
    let trace = step_trace();
    write_traces(&folder, rows[..2].iter().map(|row| (row, &trace[..])));
    let files = write(&folder, &recipe, &rows).expect("a report");
    for ending in PICTURES {
        assert!(files.contains(&folder.join(format!("charts/strategies.{ending}"))));
    }
    let html = std::fs::read_to_string(folder.join("report.html")).expect("a written report");
    assert!(html.contains("naive: 10.0 ms · 3 kernels · device busy 70 % · 67 % of copy time hidden"));
    assert!(html.contains(&format!("traces/{}.json.gz is missing", rows[2].key)));
}

/// The CPU's cell of a recipe for a GPU: its row is not taken for the GPU's with the same settings, nor
/// the other way round, and the CPU's has the GPU's as its baseline. Each precision has a baseline of its own.
#[test]
fn the_cpu_beside_a_gpu() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/methods.toml");
    let recipe =
        Recipe::parse_finished(&Source::read(&path).expect("a recipe"), false).expect("a valid recipe");
    assert_eq!(recipe.cells.len(), 19);
    let row = |(i, cell): (usize, &Cell)| {
        let mut cell = cell.clone();
        if cell.device == "auto" {
            cell.device = "cuda:0".into();
        }
        ok_row(&cell, 0.001 * (i + 1) as f64, 0.002, 1 << 30)
    };
    let rows: Vec<Row> = recipe.cells.iter().enumerate().rev().map(row).collect();
    let comparison = Comparison::new(&recipe, &rows);
    for (i, line) in comparison.lines.iter().enumerate() {
        let forward = line.measured().expect("its row").forward.as_ref().expect("a forward").median;
        assert!((forward - 0.001 * (i + 1) as f64).abs() < 1e-9, "{i}: {forward}");
        let in_bf16 = line.cell.precision.compute == Compute::Bf16;
        // The baseline of bf16 has that of fp32.
        assert_eq!(line.baseline, Some(if in_bf16 && i != 1 { 1 } else { 0 }), "{i}");
    }
    let mut methods = comparison.methods.clone();
    methods.sort();
    methods.dedup();
    assert_eq!(methods.len(), 19, "each has a label of its own: {methods:?}");
}

#[test]
fn a_report_without_any_result() {
    let recipe = recipe(STUDY);
    let failed: Vec<Row> =
        recipe.cells.iter().map(|cell| bad_row(cell, Status::Failed, "killed by signal 9")).collect();
    for rows in [failed, Vec::new()] {
        let files = written(&recipe, &rows);
        let html = String::from_utf8(files["report.html"].clone()).expect("UTF-8");
        assert!(html.contains("No cell ran to its end"));
        assert!(html.contains(if rows.is_empty() { "has not run yet" } else { "killed by signal 9" }));
    }
}

#[test]
fn a_recipe_without_a_question_or_a_baseline_has_the_same_first_page() {
    let mut recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
    recipe.question.clear();
    let files = written(&recipe, &rows(&recipe));
    let html = String::from_utf8(files["report.html"].clone()).expect("UTF-8");
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    let order = [
        "<h1",
        ">Answer<",
        "× time (1 process)",
        "id=\"what-each-method-does\"",
        "id=\"what-this-does-not-show\"",
        "id=\"appendix\"",
    ];
    assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "{:?}", order.map(place));
    assert!(!html.contains("<p></p>") && files.contains_key("charts/methods.svg"));
}

/// 10,000 rows: half a minute of a build for tests.
#[test]
#[ignore = "takes a while"]
fn a_report_has_the_rows_of_the_largest_grid() {
    let sizes: Vec<String> = (1..=5000).map(|size| size.to_string()).collect();
    let recipe = recipe(&format!(
        "[grid]\n\"train.batch_size\" = [{}]\n\"checkpoint.level\" = [0, 1]\n",
        sizes.join(", ")
    ));
    let rows = rows(&recipe);
    assert_eq!(rows.len(), 10_000);
    let start = std::time::Instant::now();
    let files = written(&recipe, &rows);
    assert!(
        files["report.html"].len() < 10_000_000 && start.elapsed().as_secs() < 120,
        "{:?}",
        start.elapsed()
    );
    eprintln!("{:?}", start.elapsed());
}

#[test]
fn an_unwritable_folder_is_an_error_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a written file");
    let recipe = recipe("");
    let error = write(&file, &recipe, &rows(&recipe)).expect_err("a file is no folder");
    assert!(error.to_string().contains("cannot write") && error.help().is_some());
}

/// A page holds the first columns; HTML and LaTeX have all.
#[test]
fn a_table_of_200_columns_is_cut_where_a_page_ends() {
    let texts = |of: &str| (0..200).map(|i| format!("{of}{i}")).collect::<Vec<_>>();
    let table = || Table {
        caption: "Wide.".into(),
        header: texts("column "),
        rows: vec![texts("first "), texts("second ")],
        texts: 3,
        left_out: 0,
    };
    let elements = vec![Element::Table(table())];
    let document = Document { title: "Wide".into(), elements, ..Document::default() };
    let html = typeset::html(&document).expect("HTML");
    assert!(html.contains("column 199") && html.contains("second 199"));
    let pdf = typeset::pdf(document).expect("a PDF");
    assert!(pdf.starts_with(b"%PDF") && pdf.len() < 200_000, "{} bytes", pdf.len());
    // The header stands twice: for the first page and for the others.
    assert_eq!(latex::tables(&[("wide", table())]).matches(" & ").count(), 4 * 199);
}

/// What is left out last came last, its bare heading goes along, and no page has a table of a thousand rows.
#[test]
fn a_long_document_is_cut_from_its_end_and_long_tables_end() {
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"180\"/>";
    let figure = |name: &str| {
        Element::Figure(Chart { name: name.into(), caption: "A figure.".into(), svg: svg.into() })
    };
    let rows = (0..1234).map(|i| vec![i.to_string()]).collect();
    let long = Table { caption: "Cells.".into(), header: vec!["cell".into()], rows, texts: 1, left_out: 0 };
    let mut elements = vec![Element::heading("Findings"), Element::List { items: vec!["Found.".into()] }];
    elements.push(Element::Table(long));
    elements.extend(["a", "b", "c", "d"].map(figure));
    elements.push(Element::heading("What the device did"));
    elements.extend([figure("timeline"), Element::heading("Limits"), Element::paragraph("One machine.")]);
    let mut document = Document { title: "Long".into(), elements, ..Document::default() };
    document.shorten(150);
    assert!(document.leave_out(1));
    let [_, _, Element::Table(table), .., Element::Heading { text }, Element::Paragraph { .. }] =
        document.elements.as_slice()
    else {
        panic!("{} elements", document.elements.len())
    };
    assert_eq!((table.rows.len(), table.left_out, text.as_str()), (150, 1084, "Limits"));
    assert_eq!((document.elements.len(), document.details.len()), (9, 1));
    let html = typeset::html(&document).expect("HTML");
    assert!(html.contains("Cells. Not shown: 1084 more rows, which table.csv has."));
}
