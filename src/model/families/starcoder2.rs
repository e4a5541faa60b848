//! StarCoder 2 (Lozhkov et al. 2024): Llama's attention between LayerNorms, a GELU MLP, and biases.

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Depends, Word};
use crate::keys::{Key, Section};
use crate::model::architecture::{Mlp, MlpLayers, Norm, with_windows};
use crate::model::config::dimension;

const OWN: [Key; 14] = [
    dimension("hidden_size"),
    dimension("intermediate_size"),
    dimension("num_hidden_layers"),
    dimension("num_attention_heads"),
    dimension("num_key_value_heads"),
    dimension("vocab_size"),
    dimension("max_position_embeddings"),
    dimension("rope_theta"),
    dimension("rope_scaling"),
    dimension("sliding_window"),
    dimension("layer_norm_eps"),
    dimension("activation").default(Depends("\"gelu_pytorch_tanh\"")),
    dimension("tie_word_embeddings").default(Bool(true)),
    dimension("attention_bias").default(Bool(true)),
];

pub const STARCODER2: Family = Family {
    kind: "starcoder2",
    class: "Starcoder2ForCausalLM",
    presets: &[],
    section: Section::of("model", "kind", &["starcoder2"])
        .with("Llama's attention between LayerNorms, a GELU MLP, and biases, or none.", &OWN),
    in_file: &[("layer_norm_eps", "norm_epsilon"), ("attention_bias", "use_bias")],
    activation: ("hidden_act", "gelu_pytorch_tanh"),
    activations: &["gelu_pytorch_tanh", "gelu_new", "gelu", "relu"],
    fixed: &[("norm_type", Word("layer_norm")), ("mlp_type", Word("default"))],
    operators: &["gelu", "attention", "loss", "norm", "rope"],
    read: |file, written| {
        file.by_default(written, &[("num_key_value_heads", 2), ("max_position_embeddings", 4096)]);
        file.read_rope(&STARCODER2, None, written)
    },
    complete: |dimensions| {
        dimensions.even_head_dim()?;
        dimensions.complete_kv_heads()
    },
    architecture: |of| {
        let mut of = of.clone();
        of.head_dim = Some(of.even_head_dim()?);
        let mut layer = llama::layer(&of)?;
        layer.norm = Norm::Layer { eps: of.layer_norm_eps() };
        layer.attention.output_bias = of.attention_bias();
        layer.mlp = Mlp {
            layers: MlpLayers::Plain(["c_fc", "c_proj"]),
            activation: of.mlp_activation("gelu_pytorch_tanh")?,
            bias: of.attention_bias(),
            ..layer.mlp
        };
        Ok(llama::around(&of, with_windows(&layer, of.windows(|_| true)?)))
    },
    ..llama::LLAMA
};
