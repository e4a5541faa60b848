//! A gradient scaler wherever blocks and their optimizer are: the same steps are skipped, and the others are the same.

use std::fs;
use std::path::Path;

use super::{change, train_alone};
use crate::measure::Measurement;
use crate::params::save::WEIGHTS;
use crate::recipe::{Cell, Recipe, Source};

/// 1024, and 2^40 after each step that was not skipped, which every gradient overflows at.
const SKIPS_EVERY_OTHER: &str = "{ kind = \"dynamic\", init_scale = 1024, growth_interval = 1, \
                                 growth_factor = 1073741824.0, backoff_factor = 9.313225746154785e-10 }";
const STRATEGIES: [&str; 7] = [
    "strategy = \"none\"\n",
    "strategy = \"naive\"\n",
    "strategy = \"checkpointed\"\n",
    "strategy = \"function\"\n",
    "strategy = \"overlap\"\nbuffers = 2\n",
    "strategy = \"overlap\"\nactivations = \"host\"\n",
    "strategy = \"overlap\"\nresident_blocks = 2\n",
];
const ADAMW: &str = "optimizer = { kind = \"adamw\", lr = 0.01, weight_decay = 0.1 }\n";

fn cell(out: &Path, train: &str, precision: &str, offload: &str) -> Cell {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"qwen2\"\nvocab_size = 300\nhidden_size = 8\n\
         intermediate_size = 12\nnum_hidden_layers = 4\nnum_attention_heads = 2\nnum_key_value_heads = 1\n[train]\n\
         batch_size = 2\nseq_len = 16\n{train}[precision]\ncompute = \"fp16\"\n{precision}[measure]\nwarmup = 1\n\
         steps = 5\n[save]\nweights = \"{}/model\"\n[offload]\n{offload}",
        out.display()
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse(&source).unwrap_or_else(|e| panic!("{e}: {}", source.text)).cells.remove(0)
}

/// How the cell trained, and the weights that it wrote.
fn trained(train_keys: &str, precision: &str, offload: &str) -> (Measurement, Vec<u8>) {
    let out = tempfile::tempdir().unwrap();
    let cell = cell(out.path(), train_keys, precision, offload);
    let measurement = train_alone(&cell, None, false);
    let weights = fs::read(out.path().join("model").join(WEIGHTS)).expect("the weights were written");
    (measurement.expect("it trains"), weights)
}

/// Trains alike wherever blocks are, for each place of the optimizer.
fn trains_alike(train_keys: &str, precision: &str, places: &[&str]) {
    for place in places {
        let mut reference = None;
        for strategy in STRATEGIES {
            let offload = format!("optimizer = \"{place}\"\n{strategy}");
            let (ours, weights) = trained(train_keys, precision, &offload);
            let scaler = ours.scaler.as_ref().expect("it has one");
            assert_eq!(scaler.skipped, 3, "{offload}: {scaler:?}");
            let (expected, expected_weights): &(Measurement, Vec<u8>) =
                reference.get_or_insert_with(|| (ours.clone(), weights.clone()));
            assert_eq!(ours.loss, expected.loss, "{train_keys}{precision}{offload}");
            assert_eq!(ours.scaler, expected.scaler, "{train_keys}{precision}{offload}");
            assert!(weights == *expected_weights, "other weights: {train_keys}{precision}{offload}");
        }
    }
}

#[test]
fn skipped_steps_are_skipped_wherever_blocks_are() {
    let scaler = format!("scaler = {SKIPS_EVERY_OTHER}\n");
    let autocast = format!("autocast = true\n{scaler}");
    for train_keys in [ADAMW.to_string(), format!("accumulation_steps = 2\n{ADAMW}")] {
        trains_alike(&train_keys, &autocast, &["device", "host"]);
        trains_alike(&train_keys, &scaler, &["device", "host"]);
    }
    // Clipped by a norm that it does not reach; momentum that a skipped step leaves.
    let sgd = "clip_norm = 1e3\noptimizer = { kind = \"sgd\", lr = 0.1, momentum = 0.9 }\n";
    trains_alike(sgd, &autocast, &["device"]);
}

/// Adapters in blocks that are frozen otherwise, and moments of few bits on the host.
#[test]
fn skipped_steps_leave_parts_of_blocks_and_moments_of_few_bits() {
    let scaler = format!("scaler = {SKIPS_EVERY_OTHER}\n");
    let lora =
        format!("{scaler}[tuning]\nmethod = \"lora\"\nrank = 2\ntarget_modules = \"q_proj, up_proj\"\n");
    trains_alike(ADAMW, &lora, &["device", "host"]);
    let bf16 = "optimizer = { kind = \"adamw_bf16\", lr = 0.01 }\n";
    for strategy in &STRATEGIES[1..] {
        let offload = |place: &str| format!("optimizer = \"{place}\"\n{strategy}");
        let [device, host] = ["device", "host"]
            .map(|place| trained(bf16, &format!("autocast = true\n{scaler}"), &offload(place)));
        assert_eq!(device.0.scaler, host.0.scaler, "{strategy}");
        assert!(device.1 == host.1, "other weights: {strategy}");
    }
}

/// Gradients are unscaled before they are clipped: the norm is one of another order of additions.
#[test]
fn clipping_is_behind_unscaling() {
    let clipped = format!("clip_norm = 0.05\n{ADAMW}");
    let precision = format!("autocast = true\nscaler = {SKIPS_EVERY_OTHER}\n");
    let folder = tempfile::tempdir().unwrap();
    let of =
        |precision: &str, offload: &str| change(&cell(folder.path(), &clipped, precision, offload), None);
    for place in ["device", "host"] {
        let rest = of(&precision, &format!("optimizer = \"{place}\"\n"));
        for strategy in &STRATEGIES[1..] {
            let ours = of(&precision, &format!("optimizer = \"{place}\"\n{strategy}"));
            for ((name, ours), (_, rest)) in ours.after.iter().zip(&rest.after) {
                let apart = ours.iter().zip(rest).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(apart < 1e-6, "{strategy}{name}: {apart:e}");
            }
        }
    }
}

/// An update on the host that did not happen took no time.
#[test]
fn skipped_updates_on_the_host_have_no_seconds() {
    let precision = format!("autocast = true\nscaler = {SKIPS_EVERY_OTHER}\n");
    let (measured, _) = trained(ADAMW, &precision, "optimizer = \"host\"\nstrategy = \"overlap\"\n");
    // Of the five measured steps the first, third and fifth were skipped.
    let updates = measured.host_update.expect("some").seconds;
    assert!(updates.len() == 2 && updates.iter().all(|seconds| *seconds > 0.0), "{updates:?}");
}
