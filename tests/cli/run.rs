//! `runner run` through the binary: what it leaves, which cells it runs, how near estimates are.

use crate::place::{Place, TINY, contents, files};

#[test]
fn a_run_leaves_rows_tables_charts_and_reports() {
    let place = Place::new(TINY);
    let ended = place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
    assert!(ended.out.contains("baseline"), "the table compares with the baseline:\n{}", ended.out);
    assert!(
        !ended.out.contains('\u{1b}') && !ended.err.contains('\u{1b}'),
        "no control characters in a pipe"
    );
    let results = place.results();
    for file in ["table.csv", "table.parquet", "table.md", "report.html", "report.pdf", "recipe.toml"] {
        let size = std::fs::metadata(results.join(file)).map(|m| m.len()).unwrap_or(0);
        assert!(size > 100, "{file} has {size} bytes");
        assert!(
            file == "recipe.toml" || ended.out.contains(file),
            "{file} is named in the output:\n{}",
            ended.out
        );
    }
    let own = results.join("charts/own.svg");
    let old = ["svg", "png", "pdf"].map(|format| results.join("charts/old").with_extension(format));
    for path in old.iter().chain([&own]) {
        std::fs::write(path, "").expect("writable");
    }
    place.runner(&["report", results.to_str().expect("UTF-8")]).exits(0);
    assert!(own.exists() && !old.iter().any(|path| path.exists()), "pictures of an earlier report go");
    std::fs::remove_file(own).expect("it is there");
    let charts = files(&results.join("charts"));
    for kind in ["svg", "png"] {
        let count = charts.iter().filter(|path| path.extension().is_some_and(|e| e == kind)).count();
        assert!(count >= 3, "{count} {kind} charts: {charts:?}");
    }
    assert_eq!(place.count("ok"), 4);
    for row in place.rows() {
        let m = &row["measurement"];
        assert_eq!(m["forward"]["seconds"].as_array().map(Vec::len), Some(3));
        assert_eq!(m["loss"].as_array().map(Vec::len), Some(4), "warm-up and measured steps");
        assert!(m["loss"][3].as_f64() < m["loss"][0].as_f64(), "training lowers the loss: {}", m["loss"]);
        let (low, mid, high) = (&m["backward"]["min"], &m["backward"]["median"], &m["backward"]["max"]);
        assert!(low.as_f64() <= mid.as_f64() && mid.as_f64() <= high.as_f64());
        assert!(m["memory"]["live_peak"].as_u64() > Some(2 * 3 * 32 * 64 * 4), "weights alone are 48 KiB");
    }
}

#[test]
fn a_second_run_measures_nothing_and_writes_the_same_report() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let first = contents(&place.results());
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured, 4 finished earlier"]);
    place.runner(&["report", place.results().to_str().expect("a UTF-8 path")]).exits(0);
    let second = contents(&place.results());
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (path, content) in &first {
        assert!(*content == second[path], "{} changed", path.display());
    }
}

#[test]
fn force_measures_again() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    place.runner(&["run", "recipe.toml", "--force", "--cell", "2"]).exits(0).says(&["1 measured"]);
    place.runner(&["run", "recipe.toml", "--force"]).exits(0).says(&["4 measured"]);
}

#[test]
fn cells_and_shards_choose_what_runs() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml", "--cell", "5"]).exits(1).says(&["there is no cell 5"]);
    place
        .runner(&["run", "recipe.toml", "--cell", "3", "--dry-run"])
        .exits(0)
        .says(&["would run 1 of 4 cells: 3"]);
    assert!(!place.path().join("results").exists(), "a dry run writes nothing");
    place.runner(&["run", "recipe.toml", "--shard", "2/4"]).exits(0).says(&["1 measured"]);
    place.runner(&["run", "recipe.toml", "--dry-run"]).exits(0).says(&["would run 3 of 4 cells: 1, 3, 4"]);
    place.runner(&["run", "recipe.toml", "--shard", "5/4"]).exits(1).says(&["--shard i/n"]);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured, 1 finished earlier"]);
}

/// The levels change what is kept, not what is computed.
#[test]
fn every_level_and_plain_autodiff_train_alike() {
    let grid = TINY.replace("\"checkpoint.level\" = [0, 1]", "\"checkpoint.level\" = [0, 0.5, 1]");
    let recipe = format!("{}\n[[grid]]\n\"ops.swiglu\" = \"plain\"\n", grid.replace("[grid]", "[[grid]]"));
    let place = Place::new(&recipe.replace("[2, 4]", "[2]"));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let losses: Vec<Vec<f64>> = place
        .rows()
        .iter()
        .map(|row| serde_json::from_value(row["measurement"]["loss"].clone()).expect("losses are numbers"))
        .collect();
    assert_eq!(losses.len(), 4);
    for other in &losses[1..] {
        for (a, b) in losses[0].iter().zip(other) {
            assert!((a - b).abs() < 1e-5 * a, "{losses:?}");
        }
    }
}

#[test]
fn the_estimate_is_within_five_percent_of_the_measured_peak() {
    let recipe = r#"title = "estimate"
[model]
kind = "swiglu"
hidden_size = 192
intermediate_size = 640
num_hidden_layers = 3
[train]
batch_size = 8
seq_len = 128
optimizer = { kind = "adamw" }
[measure]
repeats = 1
warmup = 0
steps = 2
[[grid]]
"checkpoint.level" = [0, 0.5, 1]
"train.batch_size" = [1, 8]
[[grid]]
"ops.swiglu" = "plain"
[[grid]]
"train.accumulation_steps" = [2, 5]
[[grid]]
"precision.compute" = "bf16"
"train.optimizer" = [{ kind = "sgd" }, { kind = "none" }]
"#;
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    assert_eq!(rows.len(), 11);
    for row in rows {
        let parts = ["weights", "gradients", "optimizer", "activations", "workspace"];
        let estimate: u64 = parts.iter().map(|part| row["estimate"][part].as_u64().expect("bytes")).sum();
        let measured = row["measurement"]["memory"]["live_peak"].as_u64().expect("bytes");
        let ratio = estimate as f64 / measured as f64;
        assert!((0.95..1.05).contains(&ratio), "estimate/measured = {ratio:.3} for {}", row["cell"]);
    }
}
