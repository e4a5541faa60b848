//! The user's own questions through the binary: asked before and after training, and what cannot be asked.

use std::path::Path;

use serde_json::{Value, json};

use crate::cuda::need_gpu;
use crate::place::Place;

/// A model of two layers that reads bytes, and questions of each place's own.
const OWN: &str = r#"title = "own questions"
[model]
kind = "llama"
vocab_size = 257
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
max_position_embeddings = 128
[data]
corpus = "task"
vocab_size = 257
sampler = "packed"
[task]
kind = "answers"
path = "questions"
evaluate_generation = 5
examples = 1
batch_size = 3
[train]
batch_size = 2
seq_len = 96
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 3
"#;

/// A place with questions of two files, one of which is in both.
fn place(keys: &str) -> Place {
    let place = Place::new(&OWN.replace("examples = 1\n", &format!("examples = 1\n{keys}")));
    let row = |n: usize| {
        let choices = [format!("{n}"), format!("{}", n + 1), "none".into()];
        json!({ "question": format!("{n} + 1?"), "answer": format!("{}", n + 1), "choices": choices })
            .to_string()
            + "\n"
    };
    let lines = |numbers: std::ops::Range<usize>| numbers.map(row).collect::<String>();
    std::fs::create_dir(place.path().join("questions")).unwrap();
    place.write("questions/train.jsonl", &lines(0..41));
    place.write("questions/test.jsonl", &lines(40..47));
    place
}

fn answers(row: &Value) -> Vec<Value> {
    row["measurement"]["answers"].as_array().expect("answers").clone()
}

#[test]
fn choices_are_asked_before_and_after_training() {
    let place = place("scoring = \"choice\"\n");
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let row = place.rows().remove(0);
    let [before, after] = answers(&row).try_into().expect("of one set");
    for (answers, step) in [(&before, 0), (&after, 3)] {
        let count = |key: &str| answers[key].as_u64().unwrap();
        assert_eq!((count("step"), count("questions"), count("tokens")), (step, 5, 0));
        let samples = answers["samples"].as_array().unwrap();
        let margin = |sample: &Value| sample["margin"].as_f64().unwrap();
        assert!(samples.iter().all(|sample| (margin(sample) > 0.0) == sample["right"].as_bool().unwrap()));
        assert!(samples.windows(2).all(|pair| margin(&pair[0]) <= margin(&pair[1])), "the worst first");
        let given = |sample: &Value| sample["given"].as_str().unwrap().trim().to_string();
        assert!(
            samples
                .iter()
                .all(|sample| sample["right"]
                    == (given(sample) == sample["expected"].as_str().unwrap().trim()))
        );
    }
    assert!(row["inputs"]["task.path"].is_string(), "{}", row["inputs"]);
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    ["Answers", "right before", "Question: 4", "nats a character"]
        .iter()
        .for_each(|part| assert!(report.contains(part), "{part}"));
}

#[test]
fn questions_that_cannot_be_asked_are_refused() {
    let check = |keys: &str, parts: &[&str]| {
        place(keys).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    check("answer = \"gold\"\n", &["test.jsonl", "no column `gold`", "answer, choices, question"]);
    check("scoring = \"number\"\nignore_case = true\n", &["task.ignore_case has no effect"]);
    check(
        "scoring = \"choice\"\nmax_new_tokens = 5\n",
        &["task.max_new_tokens has no effect with scoring = \"choice\""],
    );
    check("scoring = \"regex\"\npattern = \"(\"\n", &["task.pattern", "unclosed group"]);
    check("scoring = \"choise\"\n", &["did you mean `choice`"]);
    let broken = place("scoring = \"number\"\n");
    broken.write("questions/test.jsonl", "{\"question\": \"How many?\", \"answer\": \"four\"}\n");
    broken.runner(&["check", "recipe.toml"]).exits(2).says(&[
        "test.jsonl",
        "line 1",
        "\"four\" comes to no number",
    ]);
    let run = |keys: &str, parts: &[&str]| {
        place(keys).runner(&["run", "recipe.toml"]).exits(1).says(parts);
    };
    run("max_new_tokens = 120\n", &["the model has 128 positions", "task.examples or task.max_new_tokens"]);
    let missing = place("");
    std::fs::remove_dir_all(missing.path().join("questions")).unwrap();
    missing.runner(&["run", "recipe.toml"]).exits(1).says(&["questions"]);
}

/// Of each cell of recipes/answers.toml: right answers before and after.
fn learned(place: &Place) -> Vec<[u64; 2]> {
    let right =
        |row: &Value| -> Vec<u64> { answers(row).iter().map(|of| of["right"].as_u64().unwrap()).collect() };
    place.rows().iter().map(|row| right(row).try_into().expect("before and after")).collect()
}

fn example() -> Place {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("recipes/answers.toml")).unwrap();
    let path = root.join("examples/questions").display().to_string();
    Place::new(&text.replace("examples/questions", &path))
}

/// Of 150 questions a fourth is right by chance where the model chooses, and none where it writes.
fn is_learned(place: &Place) {
    let all = learned(place);
    assert!(all.len() == 2 && all.iter().all(|[before, after]| *before < 60 && *after > 120), "{all:?}");
}

#[test]
fn a_model_learns_the_questions_of_the_example() {
    let place = example();
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
    is_learned(&place);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_model_learns_the_questions_of_the_example_on_a_gpu() {
    need_gpu();
    let place = example();
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
    is_learned(&place);
}
