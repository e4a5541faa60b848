//! What must not depend on a choice: losses on where blocks, inputs and optimizer are, memory on how many
//! steps came before. On the CPU here, on a GPU in `cuda_training`.

use serde_json::Value;

use crate::place::{Place, losses};

/// Samples of unequal length, with each way to hold the blocks, their inputs and their optimizer elsewhere.
const SAMPLED: &str = r#"title = "samples"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 40
num_hidden_layers = 5
num_attention_heads = 4
max_position_embeddings = 99
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 3
seq_len = 99
clip_norm = 0.5
optimizer = { kind = "adamw", lr = 1e-2 }
[measure]
repeats = 1
warmup = 1
steps = 5
[[grid]]
"data.sampler" = ["standard", "packed"]
"train.accumulation_steps" = [1, 2]
[[grid]]
"data.sampler" = ["standard", "packed"]
"train.accumulation_steps" = [1, 2]
"offload.strategy" = ["function", "overlap"]
"offload.activations" = "host"
"offload.optimizer" = ["device", "host"]
"#;

/// Every way gives the losses that training on the device alone gives.
pub fn samples_train_alike(device: &str, relative: f64) {
    let place = Place::new(&format!("device = \"{device}\"\n{SAMPLED}"));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0).says(&["20 measured"]);
    let rows = place.rows();
    let same = |a: &Value, b: &Value| {
        let keys = [("data", "sampler"), ("train", "accumulation_steps")];
        keys.iter().all(|(section, key)| a["cell"][section][key] == b["cell"][section][key])
    };
    let plain = |row: &Value| row["cell"]["offload"]["strategy"].as_str().is_none_or(|s| s == "none");
    for row in &rows {
        let reference = losses(rows.iter().find(|other| plain(other) && same(row, other)).expect("a row"));
        let moved = reference.iter().any(|loss| (loss - reference[0]).abs() > 4.0 * relative * reference[0]);
        assert!(moved, "a lost update is noticed: {reference:?}");
        let ours = losses(row);
        assert_eq!(ours.len(), reference.len());
        for (loss, reference) in ours.iter().zip(&reference) {
            assert!((loss - reference).abs() <= relative * reference, "{}: {ours:?}", row["cell"]);
        }
    }
}

#[test]
fn samples_train_alike_wherever_blocks_are() {
    samples_train_alike("cpu", 1e-4);
}

/// A network whose optimizer state is its largest part: a step has 32 tokens.
const STATES: &str = r#"title = "states"
[model]
kind = "qwen2"
vocab_size = 512
hidden_size = 128
intermediate_size = 512
num_hidden_layers = 4
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[train]
batch_size = 1
seq_len = 32
graph = false
[measure]
repeats = 1
[grid]
"offload.strategy" = ["none", "overlap"]
"train.optimizer" = [{ kind = "adamw" }, { kind = "sgd", momentum = 0.9 }]
"#;

/// Rows that differ in `measure` alone, as `grid` has it, have the same memory, to 3 %.
pub fn peaks_are_equal(device: &str, grid: &str) {
    let place = Place::new(&format!("device = \"{device}\"\n{STATES}{grid}\n"));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0).says(&["8 measured"]);
    let cell = |row: &Value| {
        let mut cell = row["cell"].clone();
        cell["measure"] = Value::Null;
        cell
    };
    let rows = place.rows();
    for row in &rows {
        let reference = rows.iter().find(|other| cell(other) == cell(row)).expect("itself");
        for peak in ["forward_peak", "backward_peak", "optimizer_peak", "after_forward", "live_peak"] {
            let [ours, other] =
                [row, reference].map(|row| row["measurement"]["memory"][peak].as_f64().expect("bytes"));
            assert!((ours / other - 1.0).abs() < 0.03, "{peak} {ours} {other} {}", row["cell"]);
        }
    }
}

/// Also when no step was before it.
#[test]
fn the_first_step_holds_what_the_optimizer_keeps() {
    peaks_are_equal("cpu", "\"measure.warmup\" = 0\n\"measure.steps\" = [1, 3]");
}

/// Cells that update nothing show by the norm over all gradients that backward computed the same.
#[test]
fn gradients_have_the_same_norm_wherever_they_are() {
    let place = Place::new(
        r#"title = "norms"
[model]
kind = "llama"
vocab_size = 50
hidden_size = 32
intermediate_size = 56
num_hidden_layers = 4
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 24
[train]
batch_size = 4
seq_len = 24
optimizer = { kind = "none" }
[measure]
repeats = 1
warmup = 1
steps = 2
[[grid]]
"offload.strategy" = ["none", "naive", "checkpointed", "function", "overlap"]
[[grid]]
"checkpoint.blocks" = 2
"checkpoint.level" = 1
[[grid]]
"parallel.data" = [2, 4]
[[grid]]
"parallel.tensor" = 2
[[grid]]
"parallel.pipeline" = { stages = 2, schedule = "1f1b", micro_batches = 2 }
"#,
    );
    place.runner(&["run", "recipe.toml"]).exits(0);
    let norms: Vec<f64> = place
        .rows()
        .iter()
        .map(|row| row["measurement"]["gradient_norm"].as_f64().unwrap_or_else(|| panic!("{}", row["cell"])))
        .collect();
    assert_eq!(norms.len(), 10);
    for norm in &norms {
        assert!((norm / norms[0] - 1.0).abs() < 1e-5 && *norm > 0.1, "{norms:?}");
    }
    let report = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    assert!(report.contains("The norm over all gradients of one more step"));
}
