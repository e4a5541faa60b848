//! GPT-2 (Radford et al. 2019): LayerNorm, absolute positions, multi-head attention with biases and a GELU MLP
//! (the tanh approximation, `gelu_new`).

use serde_json::json;

use super::{Family, llama, plain};
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Bool, Depends, Whole};
use crate::model::architecture::{Projections, alike, with_scales};
use crate::model::config::dimension;
use crate::ops::dense::WeightLayout;

const NAMES: plain::Names = plain::Names {
    norms: ["ln_1", "ln_2"],
    attention: ("attn", Projections::Fused("c_attn"), "c_proj"),
    mlp: ("mlp", ["c_fc", "c_proj"]),
};

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
    in_file: plain::IN_FILE,
    activation: ("activation_function", "gelu_new"),
    activations: &["gelu_new", "gelu", "relu", "gelu_pytorch_tanh"],
    fixed: &[
        ("scale_attn_weights", Bool(true)),
        ("reorder_and_upcast_attn", Bool(false)),
        ("add_cross_attention", Bool(false)),
    ],
    operators: &["gelu", "attention", "loss", "norm"],
    pads: false,
    read: |_, written| {
        if written.get("scale_attn_by_inverse_layer_idx") == Some(&json!(false)) {
            written.remove("scale_attn_by_inverse_layer_idx");
        }
        Ok(())
    },
    complete: |dimensions| {
        dimensions.even_head_dim()?;
        dimensions.complete_intermediate_size();
        dimensions.check_positions()
    },
    architecture: |of| {
        let layer = plain::layer(of, &NAMES, "gelu_new")?;
        let layers = match of.scale_attn_by_inverse_layer_idx() {
            false => alike(layer, of.num_hidden_layers()),
            true => with_scales(&layer, of.num_hidden_layers()),
        };
        let mut all = plain::around(of, layers, plain::TRANSFORMER);
        (all.embedding.scale, all.embedding.positions) = plain::positions(of, "transformer.wpe");
        (all.layout, all.small_residual_weights) = (WeightLayout::InOut, true);
        Ok(all)
    },
    ..llama::LLAMA
};
