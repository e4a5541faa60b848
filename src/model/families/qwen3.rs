//! Qwen3 (Yang et al. 2025): Llama's layers with a norm of each head's query and key.

use super::{Family, llama, qwen2};
use crate::keys::key::DefaultValue::{Bool, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{QkNorm, with_windows};
use crate::model::config::{dimension, joined};

const OWN: [Key; 15] = joined(
    llama::KEYS,
    [dimension("sliding_window"), dimension("layer_types"), dimension("attention_bias").default(Bool(false))],
);

pub const QWEN3: Family = Family {
    kind: "qwen3",
    class: "Qwen3ForCausalLM",
    presets: &[
        ("qwen3-0.6b", include_str!("presets/qwen3-0.6b.json")),
        ("qwen3-1.7b", include_str!("presets/qwen3-1.7b.json")),
        ("qwen3-4b", include_str!("presets/qwen3-4b.json")),
        ("qwen3-8b", include_str!("presets/qwen3-8b.json")),
        ("qwen3-14b", include_str!("presets/qwen3-14b.json")),
        ("qwen3-32b", include_str!("presets/qwen3-32b.json")),
    ],
    section: Section::of("model", "kind", &["qwen3"])
        .with("Llama's layers with a norm of each head's query and key.", &OWN),
    window_switch: qwen2::QWEN2.window_switch,
    read: |file, written| {
        file.by_default(written, &[("head_dim", 128)]);
        (qwen2::QWEN2.read)(file, written)
    },
    complete: |dimensions| llama::complete(dimensions, 32_768),
    architecture: |of| {
        let mut layer = llama::layer(of)?;
        layer.attention.output_bias = of.attention_bias();
        layer.attention.qk_norm =
            Some(QkNorm { names: ["q_norm", "k_norm"], norm: layer.norm, by_head: true });
        Ok(llama::around(of, with_windows(&layer, of.windows(|_| true)?)))
    },
    in_file: &[],
    fixed: &[("mlp_bias", Bool(false)), ("partial_rotary_factor", Number(1.0))],
    ..llama::LLAMA
};
