//! Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention and SwiGLU.

use std::sync::Arc;

use super::Family;
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Bool, Depends, Number};
use crate::model::architecture::{
    Activation, Architecture, Attention, Embedding, Head, Layer, Mlp, MlpLayers, Norm, Place, Positions,
    Projections, Rope,
};
use crate::model::config::{Dimensions, dimension};
use crate::ops::dense::WeightLayout;
use crate::ops::rope::Pairs;

pub const SECTION: Section = Section::of("model", "kind", &["qwen2", "llama"]).with(
    "RMSNorm, rotary positions, grouped-query attention and SwiGLU; qwen2 with biases in attention.",
    &[
        dimension("hidden_size"),
        dimension("intermediate_size"),
        dimension("num_hidden_layers"),
        dimension("num_attention_heads"),
        dimension("num_key_value_heads"),
        dimension("head_dim"),
        dimension("vocab_size"),
        dimension("max_position_embeddings").default(Depends("32768 for qwen2, 2048 for llama")),
        dimension("rope_theta"),
        dimension("rms_norm_eps"),
        dimension("tie_word_embeddings"),
        dimension("attention_bias").default(Depends("true for qwen2, false for llama")),
    ],
);

pub const LLAMA: Family = Family {
    kind: "llama",
    class: "LlamaForCausalLM",
    presets: &[("smollm2-135m", include_str!("presets/smollm2-135m.json"))],
    section: SECTION,
    in_file: &[("attention_bias", "")],
    activation: ("hidden_act", "silu"),
    // Its attention_bias covers the output projection too.
    fixed: &[
        ("mlp_bias", Bool(false)),
        ("attention_bias", Bool(false)),
        ("partial_rotary_factor", Number(1.0)),
    ],
    operators: &["swiglu", "attention", "loss", "norm", "rope"],
    pads: true,
    read: |file, written| {
        file.refuse_windows()?;
        file.read_rope(written)
    },
    complete: |dimensions| complete(dimensions, "llama", false, 2048),
    architecture,
};

/// Fills in Llama's dimensions, of a kind that has biases in attention or none.
///
/// # Errors
/// When dimensions do not go together.
pub fn complete(dimensions: &mut Dimensions, kind: &str, bias: bool, positions: usize) -> Result<(), String> {
    dimensions.complete_kv_heads()?;
    let head_dim = dimensions.complete_head_dim()?;
    if !head_dim.is_multiple_of(2) {
        return Err(format!(
            "head_dim {head_dim} is odd, and rotary positions turn elements in pairs; make it even"
        ));
    }
    if *dimensions.attention_bias.get_or_insert(bias) != bias {
        return Err(format!(
            "attention_bias is {bias} for kind = \"{kind}\": qwen2 has biases on the query, key and value \
             projections, llama has none; remove the key or change `kind`"
        ));
    }
    dimensions.max_position_embeddings.get_or_insert(positions);
    Ok(())
}

pub fn architecture(of: &Dimensions) -> Architecture {
    let norm = Norm::Rms { eps: of.rms_norm_eps(), plus_one: false };
    let layer = Layer {
        norm,
        place: Place::Pre(["input_layernorm", "post_attention_layernorm"]),
        residual_scale: None,
        attention: Attention {
            name: "self_attn",
            projections: Projections::Apart(["q_proj", "k_proj", "v_proj"]),
            bias: of.attention_bias(),
            output: "o_proj",
            output_bias: false,
            heads: of.num_attention_heads(),
            kv_heads: of.num_key_value_heads(),
            head_dim: of.head_dim(),
            qk_norm: None,
            rope: Some(Rope { pairs: Pairs::halves(of.head_dim()), theta: of.rope_theta() }),
            window: None,
            scale: None,
            soft_cap: None,
        },
        mlp: Mlp {
            name: "mlp",
            layers: MlpLayers::Gated(["gate_proj", "up_proj", "down_proj"]),
            intermediate_size: of.intermediate_size(),
            activation: Activation::Silu,
            bias: false,
        },
    };
    Architecture {
        vocab_size: of.vocab_size(),
        hidden_size: of.hidden_size(),
        max_positions: of.max_position_embeddings(),
        embedding: Embedding { name: "model.embed_tokens", scale: None, positions: Positions::None },
        blocks: "model.layers",
        layers: vec![Arc::new(layer); of.num_hidden_layers()],
        final_norm: ("model.norm", norm),
        head: Head { tied: of.tie_word_embeddings(), ..Head::LM_HEAD },
        layout: WeightLayout::OutIn,
        small_residual_weights: false,
    }
}
