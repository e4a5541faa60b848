//! The layers of the GPT models and of those like them: LayerNorms, as many heads of keys as of queries, and an MLP of two
//! layers.

use std::sync::Arc;

use super::llama;
use crate::model::architecture::{
    Architecture, Attention, Layer, Mlp, MlpLayers, Norm, Place, Positions, Projections,
};
use crate::model::config::{Dimensions, LearnedOrSinusoidal};

/// The dimensions with GPT-2's names in `config.json`.
pub const IN_FILE: &[(&str, &str)] = &[
    ("hidden_size", "n_embd"),
    ("intermediate_size", "n_inner"),
    ("num_hidden_layers", "n_layer"),
    ("num_attention_heads", "n_head"),
    ("max_position_embeddings", "n_positions"),
    ("layer_norm_eps", "layer_norm_epsilon"),
    ("positions", ""),
];

/// GPT-2's names of the embedding, of the list of layers and of the last norm.
pub const TRANSFORMER: [&str; 3] = ["transformer.wte", "transformer.h", "transformer.ln_f"];

/// Names of a layer's parts in the files.
pub struct Names {
    /// The norms of attention and of the MLP.
    pub norms: [&'static str; 2],
    /// Its module, the projections of its input and that of its output.
    pub attention: (&'static str, Projections, &'static str),
    /// Its module, empty where its layers are the block's own, and its layers.
    pub mlp: (&'static str, [&'static str; 2]),
}

/// A layer whose linear layers all have biases, without rotary positions. `activation`: its MLP's by default.
///
/// # Errors
/// When the heads do not divide the hidden size, or no operator computes the activation.
pub fn layer(of: &Dimensions, names: &Names, activation: &str) -> Result<Layer, String> {
    let (attention, projections, output) = names.attention;
    let (mlp, mlp_layers) = names.mlp;
    Ok(Layer {
        norm: Norm::Layer { eps: of.layer_norm_eps.unwrap_or(1e-5) },
        place: Place::Pre(names.norms),
        residual_scale: None,
        attention: Attention {
            name: attention,
            projections,
            bias: true,
            output,
            output_bias: true,
            ..Attention::even(of.num_attention_heads(), of.even_head_dim()?)
        },
        cross_attention: None,
        mlp: Mlp {
            name: mlp,
            layers: MlpLayers::Plain(mlp_layers),
            intermediate_size: of.intermediate_size(),
            activation: of.mlp_activation(activation)?,
            bias: true,
        },
    })
}

/// A model around these layers, with the names of its embedding, of its list of layers and of its last norm.
pub fn around(
    of: &Dimensions,
    layers: Vec<Arc<Layer>>,
    [embedding, blocks, norm]: [&'static str; 3],
) -> Architecture {
    let mut all = llama::around(of, layers);
    (all.embedding.name, all.blocks, all.final_norm.0) = (embedding, blocks, norm);
    all
}

/// What the embedding is multiplied by, and what is added to it: a table of this name, or sines and cosines.
pub fn positions(of: &Dimensions, name: &'static str) -> (Option<f64>, Positions) {
    match of.positions() {
        LearnedOrSinusoidal::Learned => {
            (None, Positions::Learned { name, rows: of.max_position_embeddings(), offset: 0 })
        }
        // They are of size 1: the tokens' vectors are brought to theirs, as in the paper.
        LearnedOrSinusoidal::Sinusoidal => (Some((of.hidden_size() as f64).sqrt()), Positions::Sinusoidal),
    }
}
