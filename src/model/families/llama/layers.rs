//! Llama's layers and what stands around them, which most families build on.

use std::sync::Arc;

use crate::model::architecture::{
    Architecture, Attention, Embedding, Head, Layer, Mlp, MlpLayers, Norm, Place, Positions, Projections,
};
use crate::model::config::Dimensions;
use crate::ops::activation::Activation;
use crate::ops::dense::WeightLayout;

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
        cross_attention: None,
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
        encoder: None,
        blocks: "model.layers",
        final_norm: ("model.norm", layers[0].norm),
        layers,
        head: Head { tied: of.tie_word_embeddings(), ..Head::LM_HEAD },
        layout: WeightLayout::OutIn,
        small_residual_weights: false,
    }
}
