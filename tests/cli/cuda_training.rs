//! Training on an NVIDIA GPU in settings that a CPU cannot show: the types, layouts and copies are the
//! device's own.

use runner::device::Feature;
use serde_json::Value;

use crate::cuda::{lacks, need_gpu, suited};
use crate::equivalence::{peaks_are_equal, samples_train_alike};
use crate::place::{Place, SMALL, changed, losses};

/// Runs every cell; gives the rows, whose losses are all finite.
pub fn trained(recipe: &str, cells: usize) -> Vec<Value> {
    need_gpu();
    let place = Place::new(&suited(recipe));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0).says(&[&format!("{cells} measured")]);
    let rows = place.rows();
    assert_eq!(place.count("ok"), cells, "{:?}", rows.iter().map(|row| &row["reason"]).collect::<Vec<_>>());
    rows.iter().for_each(|row| assert!(losses(row).iter().all(|loss| loss.is_finite()), "{row}"));
    rows
}

/// The largest difference between the losses of two rows.
pub fn apart(row: &Value, other: &Value) -> f64 {
    let (ours, others) = (losses(row), losses(other));
    assert_eq!(ours.len(), others.len());
    ours.iter().zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn samples() -> String {
    changed(
        SMALL,
        &[
            ("[model]", "device = \"cuda:0\"\n[model]"),
            ("num_hidden_layers = 2", "num_hidden_layers = 6"),
            ("max_position_embeddings = 32", "max_position_embeddings = 128"),
            ("batch_size = 2", "batch_size = 4"),
            ("seq_len = 16", "seq_len = 128"),
            ("[measure]", "[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n[measure]"),
        ],
    ) + "[[grid]]\n\"data.sampler\" = [\"packed\", \"standard\"]\n\
         [[grid]]\n\"data.sampler\" = \"balanced\"\n\"data.k\" = 8\n"
}

/// More blocks than slots, and gradients in the place of weights: each width that the device prepares for is
/// a backward of its own.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn samples_of_every_width_train_with_blocks_and_optimizer_on_the_host() {
    trained(&samples(), 3);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn samples_train_alike_wherever_blocks_are_on_a_gpu() {
    need_gpu();
    samples_train_alike("cuda:0", 5e-4);
}

pub const SWIGLU: &str = r#"title = "a stack"
device = "cuda:0"
[model]
kind = "swiglu"
hidden_size = 40
intermediate_size = 72
num_hidden_layers = 3
[precision]
compute = "bf16"
[train]
batch_size = 3
seq_len = 37
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 2
steps = 8
"#;

pub const QWEN2: &str = r#"title = "biases"
device = "cuda:0"
[model]
kind = "qwen2"
preset = "qwen2.5-0.5b"
num_hidden_layers = 4
[precision]
compute = "bf16"
[train]
batch_size = 1
seq_len = 512
optimizer = { kind = "adamw", lr = 1e-5 }
[measure]
repeats = 1
warmup = 2
steps = 10
"#;

pub const GPT2: &str = r#"title = "biases"
device = "cuda:0"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 72
num_hidden_layers = 5
num_attention_heads = 4
max_position_embeddings = 64
[precision]
compute = "bf16"
[train]
batch_size = 2
seq_len = 7
clip_norm = 0.1
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 2
steps = 10
[grid]
"offload.strategy" = ["none", "overlap"]
"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn models_with_biases_stay_finite_in_bf16() {
    if lacks(Feature::Bf16Products) {
        return;
    }
    trained(QWEN2, 1);
    trained(GPT2, 2);
}

/// Matrices whose rows the backend pads: 100 columns of fp32, and of batches whose widths differ.
const PLAIN: &str = r#"title = "plain attention"
device = "cuda:0"
[model]
kind = "qwen2"
vocab_size = 300
hidden_size = 40
intermediate_size = 100
num_hidden_layers = 3
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 3
seq_len = 33
clip_norm = 1.0
optimizer = { kind = "adamw", lr = 3e-3 }
[measure]
repeats = 1
warmup = 1
steps = 7
[[grid]]
"data.sampler" = "standard"
"ops.attention" = ["custom", "plain"]
[[grid]]
"data.sampler" = "balanced"
"data.k" = 8
"ops.attention" = ["custom", "plain"]
"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn plain_attention_gives_the_custom_operators_losses() {
    let rows = trained(PLAIN, 4);
    for row in &rows {
        let sampler = |row: &Value| row["cell"]["data"]["sampler"].clone();
        let other = rows.iter().find(|other| sampler(other) == sampler(row)).expect("itself");
        let apart = apart(row, other);
        assert!(apart < 1e-4, "{apart:.1e} {}", row["cell"]);
    }
}

/// Rows of 1408 elements of two bytes.
const WIDE: &str = r#"title = "padded rows"
device = "cuda:0"
[model]
kind = "llama"
vocab_size = 512
hidden_size = 512
intermediate_size = 1408
num_hidden_layers = 9
num_attention_heads = 8
num_key_value_heads = 4
max_position_embeddings = 256
[precision]
compute = "bf16"
[train]
batch_size = 4
seq_len = 256
optimizer = { kind = "sgd", lr = 0.1 }
[measure]
repeats = 1
warmup = 1
steps = 3
[grid]
"offload.strategy" = ["none", "overlap"]
"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn matrices_whose_rows_are_padded_train_with_blocks_on_the_host() {
    let rows = trained(WIDE, 2);
    let apart = apart(&rows[0], &rows[1]);
    assert!(apart < 1e-2, "{apart:.1e}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn one_warm_up_step_tells_the_memory_that_two_tell() {
    need_gpu();
    peaks_are_equal("cuda:0", "\"measure.warmup\" = [1, 2]\n\"measure.steps\" = 2");
}
