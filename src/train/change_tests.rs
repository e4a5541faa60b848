//! Replicas that divide state, gradients and weights among them change the weights as one process does.

use super::*;
use crate::recipe::{Recipe, Source};

const SHARDS: [&str; 3] = ["optimizer", "gradients", "weights"];

const BASE: &str = r#"title = "t"
device = "cpu"
[model]
kind = "qwen2"
vocab_size = 67
hidden_size = 24
intermediate_size = 40
num_hidden_layers = 3
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 16
tie_word_embeddings = true
[measure]
warmup = 0
steps = 3
[train]
batch_size = 6
seq_len = 8
"#;

const ADAMW: &str = "optimizer = { kind = \"adamw\", lr = 0.01, epsilon = 1e-4 }\n";

fn cell(more: &str, parallel: &str) -> Cell {
    let source = Source { path: "r.toml".into(), text: format!("{BASE}{more}{parallel}") };
    Recipe::parse(&source).unwrap_or_else(|e| panic!("{e:?}")).cells.remove(0)
}

/// √Σ(a − b)² / √Σ(b − before)² over all weights.
fn apart(ours: &Change, reference: &Change) -> f64 {
    let values = |named: &Named| -> Vec<f64> {
        let mut named = named.clone();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named.into_iter().flat_map(|(_, values)| values).collect()
    };
    let [ours, after, before] = [&ours.after, &reference.after, &reference.before].map(values);
    assert_eq!(ours.len(), after.len());
    let norm = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    norm(&ours, &after) / norm(&after, &before)
}

/// Of each stage on two and on three ranks.
fn check(more: &str, within: f64) {
    let shards: Vec<&str> =
        SHARDS.into_iter().filter(|shard| *shard != "weights" || !more.contains("blocks = 2")).collect();
    check_shards(&shards, more, within);
}

fn check_shards(shards: &[&str], more: &str, within: f64) {
    let reference = change(&cell(more, ""), None);
    for (ranks, shard) in shards.iter().flat_map(|shard| [2, 3].map(|ranks| (ranks, shard))) {
        let ours = change(&cell(more, &format!("[parallel]\ndata = {ranks}\nshard = \"{shard}\"\n")), None);
        for (a, b) in ours.losses.iter().zip(&reference.losses) {
            assert!((a - b).abs() <= within * b, "{ranks} {shard} {more}: {a} is not {b}");
        }
        let apart = apart(&ours, &reference);
        assert!(apart < 100.0 * within, "{ranks} {shard} {more}: {apart}");
    }
}

#[test]
fn divided_replicas_accumulate_and_clip() {
    for more in
        ["", "accumulation_steps = 3\nclip_norm = 0.1\n", "clip_norm = 0.1\nclip = \"previous_norm\"\n"]
    {
        check(&format!("{more}{ADAMW}"), 1e-5);
    }
    check("optimizer = { kind = \"sgd\", lr = 0.1, momentum = 0.9 }\n", 1e-5);
}

#[test]
fn divided_replicas_compute_blocks_again() {
    for blocks in [1, 2] {
        check(&format!("accumulation_steps = 2\n{ADAMW}[checkpoint]\nblocks = {blocks}\n"), 1e-5);
    }
}

#[test]
fn divided_replicas_train_parts_of_a_model() {
    for method in ["lora\"\nrank = 3", "qlora\"\nrank = 3", "bitfit\"", "adapter\"\nbottleneck = 5"] {
        check(
            &format!("accumulation_steps = 2\nclip_norm = 0.1\n{ADAMW}[tuning]\nmethod = \"{method}\n"),
            1e-5,
        );
    }
}

/// Sums of fewer bits are rounded in another order, and masters keep the rest of a step.
#[test]
fn divided_replicas_train_in_fewer_bits() {
    let half = |compute: &str, more: &str| format!("{ADAMW}[precision]\ncompute = \"{compute}\"\n{more}");
    check(&half("bf16", "autocast = true\n"), 1e-3);
    let scaler = "autocast = true\n\
                  scaler = { kind = \"dynamic\", init_scale = 1e9, backoff_factor = 1e-4, growth_interval = 2 }\n";
    check(&half("fp16", scaler), 1e-3);
    for offload in ["optimizer = \"host\"\nstrategy = \"overlap\"\n", "strategy = \"overlap\"\n"] {
        let offload = format!("{scaler}[offload]\n{offload}");
        check_shards(&["weights"], &half("fp16", &offload), 1e-3);
    }
    check_shards(
        &["optimizer", "gradients"],
        &half("fp16", &format!("{scaler}[offload]\noptimizer = \"host\"\n")),
        1e-3,
    );
    let remainders = "optimizer = { kind = \"adamw\", lr = 0.01, epsilon = 1e-4, store_param_remainders = true }\n\
                      [precision]\ncompute = \"bf16\"\n";
    check(remainders, 3e-3);
}

/// Sums over ranks that fp32 can hold and fp16 cannot: such a step is skipped, and none of its sums reaches the weights.
#[test]
fn sums_that_overflow_on_their_way_to_the_host_skip_the_step() {
    let mut skipped = 0;
    for exponent in 6..22 {
        let scaler = format!("scaler = {{ kind = \"static\", scale = {} }}\n", 1u32 << exponent);
        let more = format!(
            "{ADAMW}[precision]\ncompute = \"fp16\"\n{scaler}[offload]\noptimizer = \"host\"\n[parallel]\ndata = 3\n\
             shard = \"optimizer\"\n"
        );
        let Change { before, after, .. } = change(&cell(&more, ""), None);
        assert!(after.iter().flat_map(|(_, values)| values).all(|value| value.is_finite()), "2^{exponent}");
        skipped += usize::from(before == after);
    }
    assert!((2..14).contains(&skipped), "{skipped} of 16 scales are too large");
}

/// A damaged run is noticed.
#[test]
fn a_step_that_is_left_out_is_noticed() {
    let more = format!("accumulation_steps = 2\n{ADAMW}");
    let reference = change(&cell(&more, ""), None);
    for shard in SHARDS {
        let parallel = format!("[parallel]\ndata = 2\nshard = \"{shard}\"\n");
        let damaged = change(&cell(&more, &parallel), Some(Damage::DroppedMicroBatch));
        assert!(apart(&damaged, &reference) > 0.05, "{shard}");
    }
}
