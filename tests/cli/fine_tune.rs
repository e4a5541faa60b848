//! A model that the runner trained and saved, trained on another text: what it writes before and after.

use std::path::Path;

use serde_json::Value;

use crate::place::Place;

/// A recipe of the repository with fewer steps.
fn recipe(name: &str, steps: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes").join(name);
    let text = std::fs::read_to_string(path).expect("a recipe");
    let shorter = |line: &str| match line.split_once(" = ") {
        Some(("steps", _)) => format!("steps = {steps}\nrepeats = 1"),
        Some(("size", _)) => "size = \"200 KiB\"".into(),
        _ => line.into(),
    };
    text.lines().map(shorter).collect::<Vec<String>>().join("\n")
}

/// The held-out loss of a row before training and after it.
fn losses(row: &Value) -> [f64; 2] {
    let evaluations = row["measurement"]["evaluations"].as_array().expect("it was evaluated");
    [evaluations.first(), evaluations.last()].map(|of| of.unwrap()["loss"].as_f64().unwrap())
}

/// What a row has of its two prompts, before and after.
fn texts(row: &Value) -> [String; 4] {
    let all = row["measurement"]["continuations"].as_array().expect("it wrote");
    let texts = all.iter().map(|of| of["text"].as_str().unwrap().to_string());
    texts.collect::<Vec<_>>().try_into().expect("two prompts, twice")
}

#[test]
fn text_and_perplexity_before_and_after_stand_side_by_side() {
    let place = Place::new(&recipe("fine_tune_base.toml", 60));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let base = place.rows().remove(0);
    let [before, after] = losses(&base);
    assert!(after < before - 2.0, "{before} {after}");
    std::fs::remove_dir_all(place.path().join("results")).unwrap();

    place.write("recipe.toml", &recipe("fine_tune.toml", 40));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let tuned = place.rows().remove(0);
    let [before, after] = losses(&tuned);
    assert!(after < before - 2.0, "{before} {after}");
    let [_, _, story, sum] = texts(&base);
    let [same_story, same_sum, _, new_sum] = texts(&tuned);
    // The weights are those that were saved, and the seed is the same.
    assert_eq!([&story, &sum], [&same_story, &same_sum]);
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).count();
    assert!(digits(&new_sum) > digits(&sum), "{sum} {new_sum}");
    let html = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    for part in
        ["Text before training and after it", "after 40 steps", "perplexity of held-out text", "12+34="]
    {
        assert!(html.contains(part), "{part} is not in the report");
    }
}

#[test]
fn prompts_that_cannot_be_continued_are_refused() {
    let base = recipe("fine_tune_base.toml", 5);
    let refused = |change: (&str, &str), says: &[&str]| {
        let place = Place::new(&crate::place::changed(&base, &[change]));
        place.runner(&["check", "recipe.toml"]).exits(2).says(says);
    };
    refused(
        ("corpus = \"generated\"\nsize = \"200 KiB\"\nvocab_size = 512", "corpus = \"random\""),
        &["has no tokenizer"],
    );
    refused(("prompts = [\"One morning\", \"12+34=\"]", "prompts = []"), &["generate.prompts needs a text"]);
    refused(
        ("prompts = [\"One morning\", \"12+34=\"]", "prompts = \"One\""),
        &["wrong type: expected a list"],
    );
    let place = Place::new(&crate::place::changed(&base, &[("max_new_tokens = 32", "max_new_tokens = 63")]));
    place.runner(&["run", "recipe.toml"]).exits(1).says(&["the prompt \"One morning\" has", "64 positions"]);
}
