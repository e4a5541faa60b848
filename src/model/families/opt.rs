//! OPT (Zhang et al. 2022): LayerNorm, learned positions behind two rows that no token has, multi-head attention with biases
//! and a ReLU MLP.

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Depends};
use crate::keys::{Key, Section};
use crate::model::architecture::{
    Attention, Layer, Mlp, MlpLayers, Norm, Place, Positions, Projections, alike,
};
use crate::model::config::dimension;

const OWN: [Key; 8] = [
    dimension("hidden_size"),
    dimension("intermediate_size"),
    dimension("num_hidden_layers"),
    dimension("num_attention_heads"),
    dimension("vocab_size"),
    dimension("max_position_embeddings"),
    dimension("activation").default(Depends("\"relu\"")),
    dimension("tie_word_embeddings").default(Bool(true)),
];

pub const OPT: Family = Family {
    kind: "opt",
    class: "OPTForCausalLM",
    presets: &[],
    section: Section::of("model", "kind", &["opt"])
        .with("LayerNorm, learned positions, multi-head attention with biases and a ReLU MLP.", &OWN),
    in_file: &[("intermediate_size", "ffn_dim")],
    activation: ("activation_function", "relu"),
    activations: &["relu", "gelu", "gelu_new", "gelu_pytorch_tanh"],
    fixed: &[
        ("do_layer_norm_before", Bool(true)),
        ("_remove_final_layer_norm", Bool(false)),
        ("enable_bias", Bool(true)),
        ("layer_norm_elementwise_affine", Bool(true)),
    ],
    operators: &["gelu", "attention", "loss", "norm"],
    padding: Some(1),
    read: |file, written| match file.get("word_embed_proj_dim") {
        Some(columns) if written.get("hidden_size") != Some(columns) => {
            Err(format!("word_embed_proj_dim = {columns} is not supported; only that of hidden_size is"))
        }
        _ => Ok(()),
    },
    complete: |dimensions| dimensions.even_head_dim().map(|_| ()),
    architecture: |of| {
        let layer = Layer {
            norm: Norm::Layer { eps: 1e-5 },
            place: Place::Pre(["self_attn_layer_norm", "final_layer_norm"]),
            residual_scale: None,
            attention: Attention {
                name: "self_attn",
                projections: Projections::Apart(["q_proj", "k_proj", "v_proj"]),
                bias: true,
                output: "out_proj",
                output_bias: true,
                ..Attention::even(of.num_attention_heads(), of.even_head_dim()?)
            },
            mlp: Mlp {
                name: "",
                layers: MlpLayers::Plain(["fc1", "fc2"]),
                intermediate_size: of.intermediate_size(),
                activation: of.mlp_activation("relu")?,
                bias: true,
            },
        };
        let mut all = llama::around(of, alike(layer, of.num_hidden_layers()));
        all.embedding.name = "model.decoder.embed_tokens";
        let (name, rows) = ("model.decoder.embed_positions", of.max_position_embeddings() + 2);
        all.embedding.positions = Positions::Learned { name, rows, offset: 2 };
        (all.blocks, all.final_norm.0) = ("model.decoder.layers", "model.decoder.final_layer_norm");
        Ok(all)
    },
    ..llama::LLAMA
};
