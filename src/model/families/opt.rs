//! OPT (Zhang et al. 2022): LayerNorm, learned positions behind two rows that no token has, multi-head attention with biases
//! and a ReLU MLP.

use super::{Family, llama, plain};
use crate::keys::key::DefaultValue::{Bool, Depends};
use crate::keys::{Key, Section};
use crate::model::architecture::{Positions, Projections, alike};
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

const NAMES: plain::Names = plain::Names {
    norms: ["self_attn_layer_norm", "final_layer_norm"],
    attention: ("self_attn", Projections::Apart(["q_proj", "k_proj", "v_proj"]), "out_proj"),
    mlp: ("", ["fc1", "fc2"]),
};

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
            Err(format!("word_embed_proj_dim = {columns} is not supported; it must equal hidden_size"))
        }
        _ => Ok(()),
    },
    complete: |dimensions| dimensions.even_head_dim().map(|_| ()),
    architecture: |of| {
        let layers = alike(plain::layer(of, &NAMES, "relu")?, of.num_hidden_layers());
        let names = ["model.decoder.embed_tokens", "model.decoder.layers", "model.decoder.final_layer_norm"];
        let mut all = plain::around(of, layers, names);
        let (name, rows) = ("model.decoder.embed_positions", of.max_position_embeddings() + 2);
        all.embedding.positions = Positions::Learned { name, rows, offset: 2 };
        Ok(all)
    },
    ..llama::LLAMA
};
