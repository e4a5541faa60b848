//! Tasks through the binary: a model that learns to answer, and what cannot be trained on.

use std::path::Path;

use serde_json::Value;

use crate::cuda::need_gpu;
use crate::place::{Ended, Place, fixture};

/// A recipe of the repository with other steps, and fewer questions.
fn recipe(name: &str, steps: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes").join(name);
    let text = std::fs::read_to_string(path).expect("a recipe");
    let shorter = |line: &str| match line.split_once(" = ") {
        Some(("steps", _)) => format!("steps = {steps}"),
        Some(("evaluate_generation", _)) => "evaluate_generation = 100".into(),
        Some(("every", _)) => "every = 10000".into(),
        _ => line.into(),
    };
    text.lines().map(shorter).collect::<Vec<String>>().join("\n")
}

fn accuracy(row: &Value, answers: usize) -> f64 {
    let answers = &row["measurement"]["answers"][answers];
    answers["right"].as_f64().expect("a number") / answers["questions"].as_f64().expect("a number")
}

/// Trains a base model and fine-tunes it; gives the rows of both, which answer rightly after training alone.
fn base_and_fine_tuned(place: &Place, run: impl Fn(&[&str]) -> Ended) -> [Value; 2] {
    run(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let base = place.rows().remove(0);
    std::fs::remove_dir_all(place.path().join("results")).unwrap();
    place.write("recipe.toml", &recipe("lora_sums.toml", 800));
    run(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let tuned = place.rows().remove(0);
    for row in [&base, &tuned] {
        assert!(accuracy(row, 0) < 0.1 && accuracy(row, 1) > 0.9, "{}", row["measurement"]["answers"]);
    }
    [base, tuned]
}

/// No pair of numbers of the test was trained on.
#[test]
fn fine_tuning_teaches_a_model_to_answer() {
    let place = Place::new(&recipe("sums_base.toml", 500));
    let [_, tuned] = base_and_fine_tuned(&place, |args| place.runner(args));
    let samples = tuned["measurement"]["answers"][0]["samples"].as_array().unwrap();
    assert!(samples.iter().all(|sample| sample["right"] == false), "{samples:?}");
    place.runner(&["generate", "out/sums", "--prompt", "12+34="]).exits(0).says(&["#### 46"]);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fine_tuning_teaches_a_model_to_answer_on_a_gpu() {
    need_gpu();
    let place = Place::new(&recipe("sums_base.toml", 500));
    base_and_fine_tuned(&place, |args| place.runner_on_gpu(args));
}

/// A model of two layers that reads bytes; three worked examples are up to a thousand of them.
const GSM8K: &str = r#"title = "word problems"
[model]
kind = "llama"
vocab_size = 257
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
max_position_embeddings = 1024
[data]
corpus = "task"
vocab_size = 257
sampler = "packed"
[task]
kind = "gsm8k"
path = "PATH"
evaluate_generation = 3
max_new_tokens = 5
batch_size = 2
[train]
batch_size = 2
seq_len = 256
optimizer = { kind = "adamw", lr = 1e-3 }
[eval]
every = 1000
[measure]
repeats = 1
warmup = 1
steps = 3
"#;

#[test]
fn both_test_sets_are_answered_before_and_after() {
    let place = Place::new(&GSM8K.replace("PATH", &fixture("gsm8k")));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let row = place.rows().remove(0);
    let answers = row["measurement"]["answers"].as_array().expect("answers");
    let sets: Vec<_> = answers
        .iter()
        .map(|of| (of["step"].as_u64(), of["set"].as_str(), of["questions"].as_u64()))
        .collect();
    // A twentieth of 42 problems is two.
    let of = |step, set, questions| (Some(step), Some(set), Some(questions));
    assert_eq!(sets, [of(0, "test", 2), of(0, "test.jsonl", 3), of(3, "test", 2), of(3, "test.jsonl", 3)]);
    assert!(answers.iter().all(|of| of["tokens"].as_u64() <= Some(15) && of["seconds"].as_f64() > Some(0.0)));
    assert!(row["inputs"]["task.path"].is_string(), "{}", row["inputs"]);
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    for part in ["Answers", "test.jsonl", "right before", "Question: "] {
        assert!(report.contains(part), "{part}");
    }
    let files = ["train.jsonl", "test.jsonl"].map(|name| Path::new(&fixture("gsm8k")).join(name));
    std::fs::create_dir(place.path().join("problems")).unwrap();
    for file in &files {
        std::fs::copy(file, place.path().join("problems").join(file.file_name().unwrap())).unwrap();
    }
    let text = std::fs::read_to_string(&files[0]).unwrap()
        + "{\"question\": \"How many?\", \"answer\": \"Four.\"}\n";
    place.write("problems/train.jsonl", &text);
    place.write("recipe.toml", &GSM8K.replace("PATH", "problems"));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["problems/train.jsonl, line 43", "#### number"]);
}

#[test]
fn what_cannot_be_asked_or_trained_on_is_refused() {
    let text = GSM8K.replace("PATH", &fixture("gsm8k"));
    let check = |from: &str, to: &str, parts: &[&str]| {
        assert!(text.contains(from), "{from}");
        Place::new(&text.replace(from, to)).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    check("sampler = \"packed\"\n", "", &["has samples, each with its prompt"]);
    check("corpus = \"task\"", "corpus = \"generated\"", &["this cell has another corpus"]);
    check(
        "evaluate_generation = 3\n",
        "",
        &["task.max_new_tokens has no effect", "evaluate_generation = 100"],
    );
    check("sampler = \"packed\"", "sampler = \"packed\"\nsamples = \"documents\"", &["no effect on a task"]);
    check("kind = \"gsm8k\"", "kind = \"sums\"", &["path"]);
    check("max_new_tokens = 5", "max_tokens = 5", &["unknown key `max_tokens`", "max_new_tokens"]);
    check("kind = \"gsm8k\"\n", "", &["the key `kind` is missing in `task`"]);
    let run = |from: &str, to: &str, parts: &[&str]| {
        assert!(text.contains(from), "{from}");
        Place::new(&text.replace(from, to)).runner(&["run", "recipe.toml"]).exits(1).says(parts);
    };
    run("seq_len = 256", "seq_len = 64", &["leaves nothing of its answer to learn", "train.seq_len"]);
    run("max_position_embeddings = 1024", "max_position_embeddings = 300", &["the model has 300 positions"]);
}
