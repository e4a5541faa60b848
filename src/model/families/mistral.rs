//! Mistral (Jiang et al. 2023, "Mistral 7B"): Llama's layers, in early releases with a window in all of them.

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::with_windows;
use crate::model::config::{dimension, joined};

const OWN: [Key; 13] = joined(llama::KEYS, [dimension("sliding_window")]);

pub const MISTRAL: Family = Family {
    kind: "mistral",
    class: "MistralForCausalLM",
    presets: &[("mistral-7b-v0.3", include_str!("presets/mistral-7b-v0.3.json"))],
    section: Section::of("model", "kind", &["mistral"])
        .with("Llama's layers, with or without a window of attention in all of them.", &OWN),
    fixed: &[
        ("attention_bias", Bool(false)),
        ("mlp_bias", Bool(false)),
        ("partial_rotary_factor", Number(1.0)),
    ],
    read: |file, written| {
        file.by_default(written, &[("num_key_value_heads", 8), ("sliding_window", 4096)]);
        file.read_rope(&MISTRAL, None, written)
    },
    complete: |dimensions| llama::complete(dimensions, 131_072),
    architecture: |of| Ok(llama::around(of, with_windows(&llama::layer(of)?, of.windows(|_| true)?))),
    ..llama::LLAMA
};
