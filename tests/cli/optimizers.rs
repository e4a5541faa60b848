//! Optimizers that keep less, through the binary: losses, memory, refusals.

use serde_json::Value;

use crate::place::{Place, estimated, losses};

/// Matrices of more than 4096 elements, and norms and biases of fewer.
const RECIPE: &str = r#"title = "optimizers"
[model]
kind = "gpt2"
vocab_size = 307
hidden_size = 96
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 64
[data]
corpus = "generated"
size = "60 KiB"
vocab_size = 307
[train]
batch_size = 4
seq_len = 48
clip_norm = 1.0
[measure]
repeats = 1
warmup = 1
steps = 40
"#;

const ALL: &str = r#"[[grid]]
"train.optimizer" = [
    { kind = "adamw", lr = 2e-3 },
    { kind = "adamw8bit", lr = 2e-3 },
    { kind = "adamw_bf16", lr = 2e-3 },
    { kind = "adafactor", lr = 2e-2 },
]
[[grid]]
"train.optimizer" = [{ kind = "adamw8bit", lr = 2e-3 }, { kind = "adamw_bf16", lr = 2e-3 }]
"offload.strategy" = "overlap"
"offload.optimizer" = ["device", "host"]
[[grid]]
"train.optimizer" = [{ kind = "adamw8bit", lr = 2e-3 }, { kind = "adamw_bf16", lr = 2e-3 }]
"precision.compute" = "bf16"
"#;

fn kind(row: &Value) -> &str {
    row["cell"]["train"]["optimizer"]["kind"].as_str().expect("a kind")
}

/// Moments of fewer bits learn as AdamW does, wherever blocks are, in the memory that is said.
#[test]
fn all_learn_in_the_memory_that_is_estimated() {
    let place = Place::new(&format!("{RECIPE}{ALL}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["10 measured"]);
    let rows = place.rows();
    let last = |row: &Value| {
        let losses = losses(row);
        losses[losses.len() - 5..].iter().sum::<f64>() / 5.0
    };
    let wide = rows.iter().find(|row| kind(row) == "adamw").expect("a row");
    for row in &rows {
        let ratio = estimated(row) / row["measurement"]["memory"]["live_peak"].as_f64().expect("a number");
        assert!((0.92..=1.05).contains(&ratio), "{ratio} of {}", row["cell"]);
        let first = losses(row)[0];
        assert!(last(row) < first - 0.5, "{:?} {}", losses(row), row["cell"]);
        if kind(row).starts_with("adamw") && row["cell"]["precision"]["compute"] == "fp32" {
            let far = (last(row) - last(wide)).abs();
            assert!(far < 0.1 * last(wide), "{far} {}", row["cell"]);
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |more: &str, parts: &[&str]| {
        let recipe = RECIPE.replace("clip_norm = 1.0", "optimizer = { kind = \"adafactor\" }");
        Place::new(&format!("{recipe}{more}")).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    refused("[offload]\nstrategy = \"overlap\"\n", &["rows and columns of each matrix", "adamw8bit"]);
    refused("[offload]\noptimizer = \"host\"\n", &["runs AdamW on the host", "adamw_bf16"]);
    let unknown = RECIPE.replace("clip_norm = 1.0", "optimizer = { kind = \"adamw8bit\", block_size = 64 }");
    Place::new(&unknown).runner(&["check", "recipe.toml"]).exits(2).says(&["block_size"]);
}
