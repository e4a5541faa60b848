//! How often the steps of a cell wait for their device.

use super::super::clock::WAITS;
use crate::recipe::{Recipe, Source};
use crate::train::train_alone;

/// Waits of a cell with so many measured steps.
fn waits(steps: usize, more: &str) -> usize {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"qwen2\"\nvocab_size = 257\nhidden_size = 8\n\
         intermediate_size = 12\nnum_hidden_layers = 2\nnum_attention_heads = 2\nnum_key_value_heads = 1\n\
         [train]\nbatch_size = 2\nseq_len = 16\noptimizer = {{ kind = \"adamw\", lr = 0.01 }}\n\
         [measure]\nwarmup = 2\nsteps = {steps}\n{more}"
    );
    let cell = Recipe::parse(&Source { path: "r.toml".into(), text }).expect("a recipe").cells.remove(0);
    let waits = |logged| {
        WAITS.set(0);
        train_alone(&cell, None, logged).expect("it trains");
        WAITS.get()
    };
    let [plain, logged] = [false, true].map(waits);
    assert_eq!(plain, logged, "a log waits for nothing");
    plain
}

/// Otherwise the host could not run ahead of the device, and times would contain its launches.
#[test]
fn a_plain_step_waits_for_nothing() {
    let scaler = "[precision]\ncompute = \"fp16\"\nscaler = { kind = \"dynamic\" }\n";
    let offload = "[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n";
    for more in ["", scaler, offload] {
        let few = waits(1, more);
        assert!(few <= 4, "the first step, before it and at the end: {few} waits");
        assert_eq!(waits(6, more), few, "{more}");
    }
}

/// Beside the steps: a new phase, and an evaluation.
#[test]
fn what_is_no_step_waits_before_it_and_after_it() {
    let tuned = |method: &str| {
        format!(
            "[data]\ncorpus = \"task\"\nvocab_size = 257\nsampler = \"standard\"\n[task]\nkind = \"topics\"\n\
             sentences = 60\n[tuning]\nmethod = {method}\n"
        )
    };
    let one_phase = waits(5, &tuned("\"linear_probe\""));
    assert_eq!(waits(5, &tuned("\"lp_ft\"\nprobe_steps = 3")), one_phase + 2);
    let data = "[data]\ncorpus = \"generated\"\nsize = \"64 KiB\"\nvocab_size = 257\n";
    let evaluated = |every: usize| format!("{data}[eval]\nevery = {every}\n");
    assert_eq!(waits(6, &evaluated(2)), waits(6, &evaluated(100)) + 2 * 3);
}
