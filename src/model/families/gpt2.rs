//! GPT-2 (Radford et al. 2019): LayerNorm, absolute positions, multi-head attention with biases and a GELU MLP
//! (the tanh approximation, `gelu_new`).

use std::sync::Arc;

use serde_json::json;

use super::Family;
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Bool, Depends, Whole};
use crate::model::architecture::{
    Architecture, Attention, Embedding, Head, Layer, Mlp, MlpLayers, Norm, Place, Positions, Projections,
    alike,
};
use crate::model::config::{Dimensions, LearnedOrSinusoidal, dimension};
use crate::ops::attention::Scores;
use crate::ops::dense::WeightLayout;

pub const GPT2: Family = Family {
    kind: "gpt2",
    class: "GPT2LMHeadModel",
    presets: &[
        ("gpt2", include_str!("presets/gpt2.json")),
        ("gpt2-medium", include_str!("presets/gpt2-medium.json")),
        ("gpt2-large", include_str!("presets/gpt2-large.json")),
        ("gpt2-xl", include_str!("presets/gpt2-xl.json")),
    ],
    section: Section::of("model", "kind", &["gpt2"]).with(
        "LayerNorm, absolute positions, multi-head attention with biases and a GELU MLP.",
        &[
            dimension("hidden_size"),
            dimension("intermediate_size").default(Depends("4 x hidden_size")),
            dimension("num_hidden_layers"),
            dimension("num_attention_heads"),
            dimension("vocab_size"),
            dimension("max_position_embeddings").default(Whole(1024)),
            dimension("layer_norm_eps"),
            dimension("positions"),
            dimension("activation").default(Depends("\"gelu_new\"")),
            dimension("scale_attn_by_inverse_layer_idx").default(Depends("false")),
            dimension("tie_word_embeddings").default(Bool(true)),
        ],
    ),
    in_file: &[
        ("hidden_size", "n_embd"),
        ("intermediate_size", "n_inner"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("max_position_embeddings", "n_positions"),
        ("layer_norm_eps", "layer_norm_epsilon"),
        ("positions", ""),
    ],
    activation: ("activation_function", "gelu_new"),
    activations: &["gelu_new", "gelu", "relu", "gelu_pytorch_tanh"],
    fixed: &[
        ("scale_attn_weights", Bool(true)),
        ("reorder_and_upcast_attn", Bool(false)),
        ("add_cross_attention", Bool(false)),
    ],
    window_switch: None,
    operators: &["gelu", "attention", "loss", "norm"],
    pads: false,
    padding: None,
    read: |_, written| {
        if written.get("scale_attn_by_inverse_layer_idx") == Some(&json!(false)) {
            written.remove("scale_attn_by_inverse_layer_idx");
        }
        Ok(())
    },
    complete,
    architecture,
};

fn complete(dimensions: &mut Dimensions) -> Result<(), String> {
    dimensions.even_head_dim()?;
    let hidden_size = dimensions.hidden_size();
    if dimensions.positions() == LearnedOrSinusoidal::Sinusoidal && !hidden_size.is_multiple_of(2) {
        return Err(format!(
            "hidden_size {hidden_size} is odd, and sinusoidal positions come in pairs of sine and cosine; \
             make it even"
        ));
    }
    dimensions.intermediate_size.get_or_insert(4 * hidden_size);
    Ok(())
}

fn architecture(of: &Dimensions) -> Result<Architecture, String> {
    let (hidden, heads, rows) = (of.hidden_size(), of.num_attention_heads(), of.max_position_embeddings());
    let norm = Norm::Layer { eps: of.layer_norm_eps() };
    let layer = Layer {
        norm,
        place: Place::Pre(["ln_1", "ln_2"]),
        residual_scale: None,
        attention: Attention {
            name: "attn",
            projections: Projections::Fused("c_attn"),
            bias: true,
            output: "c_proj",
            output_bias: true,
            ..Attention::even(heads, hidden / heads)
        },
        mlp: Mlp {
            name: "mlp",
            layers: MlpLayers::Plain(["c_fc", "c_proj"]),
            intermediate_size: of.intermediate_size(),
            activation: of.mlp_activation("gelu_new")?,
            bias: true,
        },
    };
    let scaled = |number: usize| {
        let scale = Some(1.0 / ((hidden / heads) as f64).sqrt() / number as f64);
        let scores = Scores { scale, ..Scores::default() };
        Arc::new(Layer { attention: Attention { scores, ..layer.attention.clone() }, ..layer.clone() })
    };
    // Sines and cosines are of size 1: the tokens' vectors are brought to theirs, as in the paper.
    let (scale, positions) = match of.positions() {
        LearnedOrSinusoidal::Learned => {
            (None, Positions::Learned { name: "transformer.wpe", rows, offset: 0 })
        }
        LearnedOrSinusoidal::Sinusoidal => (Some((hidden as f64).sqrt()), Positions::Sinusoidal),
    };
    Ok(Architecture {
        vocab_size: of.vocab_size(),
        hidden_size: hidden,
        max_positions: rows,
        embedding: Embedding { name: "transformer.wte", scale, positions },
        blocks: "transformer.h",
        layers: match of.scale_attn_by_inverse_layer_idx() {
            false => alike(layer.clone(), of.num_hidden_layers()),
            true => (1..=of.num_hidden_layers()).map(scaled).collect(),
        },
        final_norm: ("transformer.ln_f", norm),
        head: Head { tied: of.tie_word_embeddings(), ..Head::LM_HEAD },
        layout: WeightLayout::InOut,
        small_residual_weights: true,
    })
}
