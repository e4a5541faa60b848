//! Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention and SwiGLU.

use std::sync::Arc;

use super::Family;
use crate::keys::key::DefaultValue::{Bool, Depends, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{
    Architecture, Attention, Embedding, Head, Layer, Mlp, MlpLayers, Norm, Place, Positions, Projections,
    alike,
};
use crate::model::config::{Dimensions, dimension, joined};
use crate::ops::activation::Activation;
use crate::ops::dense::WeightLayout;

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

/// Fills in the dimensions of a family with Llama's layers and so many positions.
///
/// # Errors
/// When dimensions do not go together.
pub fn complete(dimensions: &mut Dimensions, positions: usize) -> Result<(), String> {
    dimensions.complete_kv_heads()?;
    let head_dim = dimensions.complete_head_dim()?;
    if !head_dim.is_multiple_of(2) {
        return Err(format!(
            "head_dim {head_dim} is odd, and rotary positions turn elements in pairs; make it even"
        ));
    }
    dimensions.max_position_embeddings.get_or_insert(positions);
    Ok(())
}

/// Llama's layer, without a bias on its output projection.
///
/// # Errors
/// When its rotary positions cannot be read.
pub fn layer(of: &Dimensions) -> Result<Layer, String> {
    Ok(Layer {
        norm: Norm::Rms { eps: of.rms_norm_eps(), plus_one: false },
        place: Place::Pre(["input_layernorm", "post_attention_layernorm"]),
        residual_scale: None,
        attention: Attention {
            name: "self_attn",
            projections: Projections::Apart(["q_proj", "k_proj", "v_proj"]),
            bias: of.attention_bias(),
            output: "o_proj",
            kv_heads: of.num_key_value_heads(),
            rope: Some(of.rope(of.head_dim())?),
            ..Attention::even(of.num_attention_heads(), of.head_dim())
        },
        mlp: Mlp {
            name: "mlp",
            layers: MlpLayers::Gated(["gate_proj", "up_proj", "down_proj"]),
            intermediate_size: of.intermediate_size(),
            activation: Activation::Silu,
            bias: of.mlp_bias(),
        },
    })
}

/// Llama around these layers, with their norm.
pub fn around(of: &Dimensions, layers: Vec<Arc<Layer>>) -> Architecture {
    Architecture {
        vocab_size: of.vocab_size(),
        hidden_size: of.hidden_size(),
        max_positions: of.max_position_embeddings(),
        embedding: Embedding { name: "model.embed_tokens", scale: None, positions: Positions::None },
        blocks: "model.layers",
        final_norm: ("model.norm", layers[0].norm),
        layers,
        head: Head { tied: of.tie_word_embeddings(), ..Head::LM_HEAD },
        layout: WeightLayout::OutIn,
        small_residual_weights: false,
    }
}
