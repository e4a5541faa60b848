//! Segments of blocks through the binary: the losses of blocks that keep all, and the memory that was estimated.

use serde_json::Value;

use crate::place::{Place, estimated, losses};

/// Blocks are the most of it. Six are in segments of four and two, and in one.
const RECIPE: &str = r#"title = "segments"
[model]
hidden_size = 128
num_hidden_layers = 6
MODEL
[train]
batch_size = 8
seq_len = 128
optimizer = { kind = "sgd", lr = 0.1 }
[measure]
repeats = 1
warmup = 0
steps = 2
[grid]
"checkpoint.blocks" = [0, 1, 2, 4, 9]
MORE
"#;

const GPT2: &str = "kind = \"gpt2\"\nvocab_size = 256\nnum_attention_heads = 4";

fn recipe(model: &str, more: &str) -> String {
    RECIPE.replace("MODEL", model).replace("MORE", more)
}

fn trains_as_estimated(model: &str, more: &str) {
    let place = Place::new(&recipe(model, more));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let blocks = |row: &Value| row["cell"]["checkpoint"]["blocks"].as_u64().expect("a number");
    let level = |row: &Value| row["cell"]["checkpoint"]["level"].clone();
    let rows = place.rows();
    for row in &rows {
        let all =
            rows.iter().find(|all| blocks(all) == 0 && level(all) == level(row)).expect("without segments");
        assert_eq!(losses(row), losses(all), "{}", row["cell"]);
        let estimate = estimated(row);
        let measured = row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes");
        assert!((0.97..1.03).contains(&(estimate / measured)), "{estimate} {measured} {}", row["cell"]);
        let flops = |row: &Value, of: &str| row["flops"][of].as_f64().expect("FLOPs");
        assert_eq!(blocks(row) > 0, flops(row, "recompute") > flops(all, "recompute"), "{}", row["flops"]);
        assert_eq!(flops(row, "backward"), flops(all, "backward"));
    }
}

#[test]
fn segments_of_gpt2_take_the_memory_that_was_estimated() {
    trains_as_estimated(GPT2, "");
}

#[test]
fn segments_of_qwen2_take_the_memory_that_was_estimated() {
    let sizes = "vocab_size = 256\nintermediate_size = 384\nnum_attention_heads = 4\nnum_key_value_heads = 2";
    trains_as_estimated(&format!("kind = \"qwen2\"\n{sizes}"), "\"checkpoint.level\" = [0, 1]");
}

#[test]
fn segments_of_a_swiglu_stack_take_the_memory_that_was_estimated() {
    trains_as_estimated("kind = \"swiglu\"\nintermediate_size = 384", "\"checkpoint.level\" = [0, 1]");
}

#[test]
fn one_block_is_what_offload_computes_again_and_more_are_refused() {
    let offloaded = |blocks: &str| {
        let recipe = recipe(GPT2, "\"offload.strategy\" = \"overlap\"");
        Place::new(&recipe.replace("[0, 1, 2, 4, 9]", blocks))
    };
    offloaded("[0, 1]").runner(&["check", "recipe.toml"]).exits(0).says(&["2 cells, all valid"]);
    let message = "checkpoint.blocks = 2 does not go with offload.strategy = \"overlap\"";
    offloaded("[2]").runner(&["check", "recipe.toml"]).exits(2).says(&[message, "remove checkpoint.blocks"]);
}
