//! Gemma (Gemma Team 2024): Llama's layers with GELU in the gate and norms with 1 + weight, and an embedding that is
//! multiplied by √hidden_size.

use std::sync::Arc;

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number, Word};
use crate::keys::{Key, Section};
use crate::model::architecture::{Architecture, Layer, Norm, alike};
use crate::model::config::{Dimensions, dimension, joined, with_default};
use crate::ops::activation::Activation;

/// The dimensions of all of Gemma's.
pub const KEYS: [Key; 13] = with_default(
    joined(llama::KEYS, [dimension("attention_bias").default(Bool(false))]),
    "tie_word_embeddings",
    Bool(true),
);

pub const GEMMA: Family = Family {
    kind: "gemma",
    class: "GemmaForCausalLM",
    presets: &[],
    section: Section::of("model", "kind", &["gemma"])
        .with("Llama's layers with GELU in the gate, norms with 1 + weight and a scaled embedding.", &KEYS),
    activation: ("hidden_act", "gelu_pytorch_tanh"),
    activations: &["gelu_pytorch_tanh"],
    fixed: &[
        ("hidden_activation", Word("gelu_pytorch_tanh")),
        ("mlp_bias", Bool(false)),
        ("partial_rotary_factor", Number(1.0)),
        ("use_bidirectional_attention", Bool(false)),
    ],
    padding: Some(0),
    read: |file, written| {
        file.by_default(written, &[("head_dim", 256), ("num_key_value_heads", 16)]);
        file.read_rope(&GEMMA, None, written)
    },
    complete: |dimensions| llama::complete(dimensions, 8192),
    architecture: |of| Ok(around(of, alike(layer(of)?, of.num_hidden_layers()))),
    ..llama::LLAMA
};

/// Llama's layer with Gemma's norms and its gate.
///
/// # Errors
/// When its rotary positions cannot be read.
pub fn layer(of: &Dimensions) -> Result<Layer, String> {
    let mut layer = llama::layer(of)?;
    layer.norm = Norm::Rms { eps: of.rms_norm_eps(), plus_one: true };
    layer.attention.output_bias = of.attention_bias();
    layer.mlp.activation = Activation::GeluTanh;
    Ok(layer)
}

/// Gemma around these layers.
pub fn around(of: &Dimensions, layers: Vec<Arc<Layer>>) -> Architecture {
    let mut architecture = llama::around(of, layers);
    architecture.embedding.scale = Some((of.hidden_size() as f64).sqrt());
    architecture
}
