//! Qwen2 (Yang et al. 2024): Llama's layers with biases on q, k and v, and in some models windows in the last layers.

use serde_json::json;

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Depends, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::with_windows;
use crate::model::config::{dimension, joined};

const OWN: [Key; 15] = joined(
    llama::KEYS,
    [
        dimension("sliding_window"),
        dimension("layer_types"),
        dimension("attention_bias").default(Depends("true")),
    ],
);

pub const QWEN2: Family = Family {
    kind: "qwen2",
    class: "Qwen2ForCausalLM",
    presets: &[
        ("qwen2.5-0.5b", include_str!("presets/qwen2.5-0.5b.json")),
        ("qwen2.5-1.5b", include_str!("presets/qwen2.5-1.5b.json")),
        ("qwen2.5-3b", include_str!("presets/qwen2.5-3b.json")),
        ("qwen2.5-7b", include_str!("presets/qwen2.5-7b.json")),
        ("qwen2.5-14b", include_str!("presets/qwen2.5-14b.json")),
        ("qwen2.5-32b", include_str!("presets/qwen2.5-32b.json")),
    ],
    section: Section::of("model", "kind", &["qwen2"])
        .with("Llama's layers with biases on queries, keys and values.", &OWN),
    in_file: &[("attention_bias", "")],
    fixed: &[("mlp_bias", Bool(false)), ("use_mrope", Bool(false)), ("partial_rotary_factor", Number(1.0))],
    window_switch: Some("use_sliding_window"),
    read: |file, written| {
        if !file.has("num_key_value_heads") {
            // transformers' default for an absent key; a null means as many as query heads.
            written.insert("num_key_value_heads".into(), json!(32));
        }
        file.read_windows(written)?;
        file.read_rope(&QWEN2, None, written)
    },
    complete: |dimensions| {
        if !*dimensions.attention_bias.get_or_insert(true) {
            return Err(
                "attention_bias is true for kind = \"qwen2\", which has biases on the query, key and value \
                        projections; remove the key, or write kind = \"llama\""
                    .into(),
            );
        }
        llama::complete(dimensions, 32_768)
    },
    architecture: |of| {
        // Without `layer_types` every layer has the window, where there is one.
        Ok(llama::around(of, with_windows(&llama::layer(of)?, of.windows(|_| true)?)))
    },
    ..llama::LLAMA
};
