//! Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention and SwiGLU.

mod layers;

pub use layers::{around, complete, layer};

use super::Family;
use crate::keys::key::DefaultValue::{Bool, Depends, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::alike;
use crate::model::config::{dimension, joined};

/// The dimensions of all families with Llama's layers.
pub const KEYS: [Key; 12] = [
    dimension("hidden_size"),
    dimension("intermediate_size"),
    dimension("num_hidden_layers"),
    dimension("num_attention_heads"),
    dimension("num_key_value_heads"),
    dimension("head_dim"),
    dimension("vocab_size"),
    dimension("max_position_embeddings").default(Depends("transformers' of the kind")),
    dimension("rope_theta"),
    dimension("rope_scaling"),
    dimension("rms_norm_eps"),
    dimension("tie_word_embeddings"),
];
const OWN: [Key; 14] = joined(
    KEYS,
    [dimension("attention_bias").default(Bool(false)), dimension("mlp_bias").default(Depends("false"))],
);

pub const LLAMA: Family = Family {
    kind: "llama",
    class: "LlamaForCausalLM",
    whole: None,
    presets: &[
        ("smollm2-135m", include_str!("presets/smollm2-135m.json")),
        ("tinyllama-1.1b", include_str!("presets/tinyllama-1.1b.json")),
        ("llama-3.2-1b", include_str!("presets/llama-3.2-1b.json")),
        ("llama-3.2-3b", include_str!("presets/llama-3.2-3b.json")),
        ("llama-3.1-8b", include_str!("presets/llama-3.1-8b.json")),
    ],
    section: Section::of("model", "kind", &["llama"])
        .with("RMSNorm, rotary positions, grouped-query attention and SwiGLU.", &OWN),
    in_file: &[],
    activation: ("hidden_act", "silu"),
    activations: &["silu"],
    fixed: &[("partial_rotary_factor", Number(1.0))],
    window_switch: None,
    operators: &["swiglu", "attention", "loss", "norm", "rope"],
    pads: true,
    padding: None,
    read: |file, written| {
        file.refuse_windows()?;
        if written.get("mlp_bias").and_then(serde_json::Value::as_bool) == Some(false) {
            written.remove("mlp_bias");
        }
        file.read_rope(&LLAMA, None, written)
    },
    complete: |dimensions| complete(dimensions, 2048),
    architecture: |of| {
        let mut layer = layer(of)?;
        layer.attention.output_bias = of.attention_bias();
        Ok(around(of, alike(layer, of.num_hidden_layers())))
    },
};
