//! Predicted speeds of cards that nobody measured the runner on, beside those that others published of their programs.

use super::*;
use crate::recipe::{Recipe, Source};

fn cell(text: &str, target: &Target) -> Cell {
    let source = Source { path: "r.toml".into(), text: format!("title = \"t\"\n{text}") };
    Recipe::parse_for(&source, target).unwrap_or_else(|e| panic!("{e}: {text}")).cells.remove(0)
}

/// Tokens a second of the fastest way to train the cell, by its own method and optimizer, on this card.
fn predicted(text: &str, card: &str) -> Option<f64> {
    let target: Target = card.parse().expect("a card");
    let cell = cell(text, &target);
    let rates = target.card().map(|(card, part)| Rates::of_card(card, part));
    let memory = target.info(cell.device_id()).memory_available;
    let place =
        Place { target: &target, limits: Limits { memory, host_memory: None }, rates: rates.as_ref() };
    advise(&cell, std::slice::from_ref(&cell), place, &[]).fitting.first()?.tokens_per_second()
}

/// LLMQ (IST-DASLab/llmq at b77d969, `benchmarks` and README): Qwen2.5 from scratch, bf16 with master and moments in bf16, 1024 tokens,
/// 524,288 a step; thousands of tokens a second.
const LLMQ: [(&str, &str, f64); 16] = [
    ("0.5b", "rtx 4090", 39.9),
    ("0.5b", "rtx 5090", 55.0),
    ("0.5b", "l40s", 44.0),
    ("0.5b", "5060 ti 16 gb", 13.0),
    ("1.5b", "rtx 4090", 14.1),
    ("1.5b", "rtx 5090", 17.0),
    ("1.5b", "l40s", 17.0),
    ("1.5b", "5060 ti 16 gb", 3.9),
    ("3b", "rtx 4090", 7.0),
    ("3b", "rtx 5090", 8.6),
    ("3b", "l40s", 8.9),
    ("3b", "5060 ti 16 gb", 2.0),
    ("7b", "rtx 4090", 2.78),
    ("7b", "rtx 5090", 3.1),
    ("7b", "l40s", 3.9),
    ("7b", "5060 ti 16 gb", 0.889),
];

#[test]
fn speeds_of_cards_are_near_those_that_llmq_published() {
    let mut errors = Vec::new();
    for (model, card, published) in LLMQ {
        let text = format!(
            "[model]\npreset = \"qwen2.5-{model}\"\n[precision]\ncompute = \"bf16\"\n[train]\nbatch_size = 512\nseq_len = 1024\n\
             optimizer = {{ kind = \"adamw_bf16\", lr = 3e-4 }}\n"
        );
        let speed = predicted(&text, card).expect("a way that fits") / 1e3;
        println!("{model} {card}: {speed:.2} of {published} thousand tokens/s, {:.2}", speed / published);
        errors.push((speed / published - 1.0).abs());
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let most = errors.iter().copied().fold(0.0, f64::max);
    println!("mean {mean:.3}, most {most:.3}");
    assert!(mean < 0.12 && most < 0.25, "{mean} {most}");
}

/// LLaMA-Factory's wiki (Performance-comparison), QLoRA of Llama-2-7B on an A100 of 40 GB, one sequence: tokens of it, and tokens a second with
/// FlashAttention 2 and with Unsloth. Both recompute every block.
const LLAMA_FACTORY: [(usize, f64, f64); 4] =
    [(1024, 2295.0, 2556.0), (4096, 2926.0, 3413.0), (16384, 3542.0, 4050.0), (32768, 2216.0, 2456.0)];

#[test]
fn speeds_of_an_a100_are_beside_those_of_llama_factory() {
    for (seq_len, flash, unsloth) in LLAMA_FACTORY {
        let text = format!(
            "[model]\nkind = \"llama\"\nvocab_size = 32000\nhidden_size = 4096\nintermediate_size = 11008\nnum_hidden_layers = 32\n\
             num_attention_heads = 32\nnum_key_value_heads = 32\nmax_position_embeddings = 65536\n[precision]\ncompute = \"bf16\"\n\
             [tuning]\nmethod = \"qlora\"\ntarget_modules = \"all-linear\"\n[checkpoint]\nblocks = 1\n[train]\nbatch_size = 1\n\
             seq_len = {seq_len}\noptimizer = {{ kind = \"adamw\", lr = 1e-4 }}\n"
        );
        let target: Target = "a100 40 gb".parse().expect("a card");
        let rates = target.card().map(|(card, part)| Rates::of_card(card, part));
        let plan = Plan::new(cell(&text, &target), rates.as_ref());
        let speed = plan.tokens_per_second().expect("known rates");
        // 6.6 billion weights, forward, forward again and backward to their inputs; attention's backward is 2.5 of its forward.
        let operations = 6.0 * 6.607e9 + 4.5 * (2 * 4096 * 32 * seq_len) as f64;
        let [own, slower, faster] = [speed, flash, unsloth].map(|of| of * operations / 312e12);
        println!(
            "{seq_len}: {speed:.0}, {:.2} of FlashAttention's, {:.2} of Unsloth's; {own:.2}, {slower:.2} and {faster:.2} of 312 TFLOP/s",
            speed / flash,
            speed / unsloth
        );
        // On an H100 PEFT takes twice the runner's time at 1 x 1024 (results/strong/h100).
        let ratio = speed / flash;
        assert!((0.6..1.5).contains(&ratio), "{seq_len}: {speed}");
    }
}
