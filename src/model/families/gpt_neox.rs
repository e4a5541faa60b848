//! GPT-NeoX (Black et al. 2022) and Pythia: attention and a GELU MLP with a LayerNorm each, side by side or one after the
//! other. One linear layer gives the query, key and value of each head, and rotary positions turn a part of it.

use super::{Family, llama, plain};
use crate::keys::key::DefaultValue::{Bool, Depends, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{Place, Projections, alike};
use crate::model::config::dimension;

const OWN: [Key; 14] = [
    dimension("hidden_size"),
    dimension("intermediate_size"),
    dimension("num_hidden_layers"),
    dimension("num_attention_heads"),
    dimension("partial_rotary_factor").default(Number(0.25)),
    dimension("vocab_size"),
    dimension("max_position_embeddings"),
    dimension("rope_theta"),
    dimension("rope_scaling"),
    dimension("layer_norm_eps"),
    dimension("activation").default(Depends("\"gelu\"")),
    dimension("use_parallel_residual"),
    dimension("tie_word_embeddings"),
    dimension("attention_bias").default(Bool(true)),
];

const NAMES: plain::Names = plain::Names {
    norms: ["input_layernorm", "post_attention_layernorm"],
    attention: ("attention", Projections::FusedByHead("query_key_value"), "dense"),
    mlp: ("mlp", ["dense_h_to_4h", "dense_4h_to_h"]),
};

pub const GPT_NEOX: Family = Family {
    kind: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    presets: &[
        ("pythia-160m", include_str!("presets/pythia-160m.json")),
        ("pythia-410m", include_str!("presets/pythia-410m.json")),
        ("pythia-1b", include_str!("presets/pythia-1b.json")),
        ("pythia-1.4b", include_str!("presets/pythia-1.4b.json")),
        ("pythia-2.8b", include_str!("presets/pythia-2.8b.json")),
        ("pythia-6.9b", include_str!("presets/pythia-6.9b.json")),
    ],
    section: Section::of("model", "kind", &["gpt_neox"]).with(
        "Attention and a GELU MLP with a LayerNorm each, side by side, rotary positions on a part of each head, and biases.",
        &OWN,
    ),
    in_file: &[("partial_rotary_factor", "rotary_pct"), ("rope_theta", "rotary_emb_base")],
    activation: ("hidden_act", "gelu"),
    activations: &["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"],
    fixed: &[],
    operators: &["gelu", "attention", "loss", "norm", "rope"],
    pads: false,
    read: |file, written| file.read_rope(&GPT_NEOX, None, written),
    complete: |dimensions| dimensions.even_head_dim().map(|_| ()),
    architecture: |of| {
        let mut layer = plain::layer(of, &NAMES, "gelu")?;
        if of.use_parallel_residual() {
            layer.place = Place::Parallel(NAMES.norms[0], Some(NAMES.norms[1]));
        }
        (layer.attention.bias, layer.attention.output_bias) = (of.attention_bias(), of.attention_bias());
        layer.attention.rope = Some(of.rope(layer.attention.head_dim)?);
        let names = ["gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm"];
        let mut all = plain::around(of, alike(layer, of.num_hidden_layers()), names);
        all.head.name = "embed_out";
        Ok(all)
    },
    ..llama::LLAMA
};
