//! `run --trace` and `runner profile`: where the time of a step went.

use crate::place::{Place, TINY};

/// A language model with every operator of its family, and an optimizer.
const LANGUAGE: &str = r#"title = "language"
[model]
kind = "qwen2"
vocab_size = 300
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 32
[train]
batch_size = 2
seq_len = 16
accumulation_steps = 2
clip_norm = 1.0
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 2
"#;

#[test]
fn operators_of_a_step_stand_beside_their_floors() {
    let place = Place::new(LANGUAGE);
    place.runner(&["run", "recipe.toml", "--trace"]).exits(0).says(&["1 measured"]);
    let folder = place.results();
    let ended = place.runner(&["profile", folder.to_str().expect("UTF-8")]).exits(0);
    let line = |phase: &str, operator: &str| {
        let found = ended.out.lines().find(|line| line.starts_with(phase) && line.contains(operator));
        found.unwrap_or_else(|| panic!("no {operator} in {phase}:\n{}", ended.out)).to_string()
    };
    for operator in ["embedding", "norm", "linear", "rope", "attention", "swiglu", "residual", "loss"] {
        assert!(line("forward", operator).contains('x'), "it has a floor: {}", line("forward", operator));
        line("backward", operator);
    }
    assert!(
        line("backward", "linear").contains("operations") || line("backward", "linear").contains("bytes")
    );
    assert!(line("optimizer", "update").contains("bytes"), "{}", ended.out);
    line("backward", "gradient sums");
    line("optimizer", "gradient norm");
    assert!(line("step", "all").contains("100 %"), "{}", ended.out);
    // The report has the same table.
    let report = std::fs::read_to_string(folder.join("report.html")).expect("a report");
    assert!(report.contains("the time of a traced step by operator") && report.contains("gradient sums"));
    // A row names itself.
    let row = place.row_files().remove(0);
    let of_row = place.runner(&["profile", row.to_str().expect("UTF-8")]).exits(0);
    assert_eq!(of_row.out, ended.out);
}

#[test]
fn what_names_no_trace_is_answered_with_what_to_do() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml", "--cell", "1", "--cell", "2"]).exits(0);
    let folder = place.results();
    let profile = |path: &std::path::Path| place.runner(&["profile", path.to_str().expect("UTF-8")]);
    profile(&folder)
        .exits(1)
        .says(&["no cell of", "`runner run` of its recipe, recipe.toml, with --trace --force"]);
    let row = place.row_files().remove(0);
    profile(&row).exits(1).says(&["has no trace", "--trace --force"]);
    place.runner(&["run", "recipe.toml", "--cell", "1", "--cell", "2", "--trace", "--force"]).exits(0);
    let name = row.file_stem().and_then(|name| name.to_str()).expect("UTF-8");
    profile(&folder).exits(1).says(&["2 cells of", "rows/<key>.json", name, "level 1"]);
    let ended = profile(&row).exits(0).says(&["swiglu", "outside of operators"]);
    assert!(ended.out.contains("× floor"), "{}", ended.out);
    profile(&place.path().join("nothing.json")).exits(1).says(&["neither a row nor a results folder"]);
    profile(&place.path().join("recipe.toml")).exits(1).says(&["is not a results folder"]);
}

/// A trace is of its row's process alone.
#[test]
fn a_trace_goes_with_its_row() {
    let place = Place::new(TINY);
    let count = || std::fs::read_dir(place.results().join("traces")).map_or(0, Iterator::count);
    let cell = ["run", "recipe.toml", "--cell", "1"];
    let run = |more: &[&str]| place.runner(&[&cell[..], more].concat()).exits(0);
    run(&["--trace"]);
    assert_eq!(count(), 1);
    run(&["--trace"]).says(&["0 measured, 1 finished earlier"]);
    run(&["--force"]);
    assert_eq!(count(), 0);
    run(&["--trace"]).says(&["1 cell finished earlier without a trace", "--trace --force"]);
}
