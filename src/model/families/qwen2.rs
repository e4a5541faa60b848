//! Qwen2 (Yang et al. 2024): Llama with biases on q, k and v.

use serde_json::json;

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number};

pub const QWEN2: Family = Family {
    kind: "qwen2",
    class: "Qwen2ForCausalLM",
    presets: &[
        ("qwen2.5-0.5b", include_str!("presets/qwen2.5-0.5b.json")),
        ("qwen2.5-1.5b", include_str!("presets/qwen2.5-1.5b.json")),
        ("qwen2.5-3b", include_str!("presets/qwen2.5-3b.json")),
        ("qwen2.5-7b", include_str!("presets/qwen2.5-7b.json")),
    ],
    fixed: &[("mlp_bias", Bool(false)), ("partial_rotary_factor", Number(1.0))],
    read: |file, written| {
        if !file.has("num_key_value_heads") {
            // transformers' default for an absent key; a null means as many as query heads.
            written.insert("num_key_value_heads".into(), json!(32));
        }
        (llama::LLAMA.read)(file, written)
    },
    complete: |dimensions| llama::complete(dimensions, "qwen2", true, 32_768),
    ..llama::LLAMA
};
