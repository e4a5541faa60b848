//! Phi (Li et al. 2023, "Textbooks Are All You Need II"): attention and a GELU MLP read the same LayerNorm. Rotary positions
//! turn a part of each head, and all linear layers have biases.

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Depends, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{Mlp, MlpLayers, Norm, Place, alike};
use crate::model::config::dimension;

const OWN: [Key; 13] = [
    dimension("hidden_size"),
    dimension("intermediate_size"),
    dimension("num_hidden_layers"),
    dimension("num_attention_heads"),
    dimension("num_key_value_heads"),
    dimension("partial_rotary_factor").default(Number(0.5)),
    dimension("vocab_size"),
    dimension("max_position_embeddings"),
    dimension("rope_theta"),
    dimension("rope_scaling"),
    dimension("layer_norm_eps"),
    dimension("activation").default(Depends("\"gelu_new\"")),
    dimension("tie_word_embeddings"),
];

pub const PHI: Family = Family {
    kind: "phi",
    class: "PhiForCausalLM",
    presets: &[],
    section: Section::of("model", "kind", &["phi"]).with(
        "Attention and a GELU MLP that read the same LayerNorm, rotary positions on a part of each head, and biases.",
        &OWN,
    ),
    activation: ("hidden_act", "gelu_new"),
    activations: &["gelu_new", "gelu_pytorch_tanh", "gelu", "relu"],
    fixed: &[("qk_layernorm", Bool(false))],
    operators: &["gelu", "attention", "loss", "norm", "rope"],
    read: |file, written| file.read_rope(&PHI, None, written),
    complete: |dimensions| {
        dimensions.refuse_tied("Phi")?;
        dimensions.even_head_dim()?;
        dimensions.complete_kv_heads()
    },
    architecture: |of| {
        let head_dim = of.even_head_dim()?;
        let mut of = of.clone();
        of.head_dim = Some(head_dim);
        let mut layer = llama::layer(&of)?;
        layer.norm = Norm::Layer { eps: of.layer_norm_eps() };
        layer.place = Place::Parallel("input_layernorm", None);
        (layer.attention.bias, layer.attention.output, layer.attention.output_bias) = (true, "dense", true);
        layer.mlp = Mlp {
            layers: MlpLayers::Plain(["fc1", "fc2"]),
            activation: of.mlp_activation("gelu_new")?,
            bias: true,
            ..layer.mlp
        };
        let mut all = llama::around(&of, alike(layer, of.num_hidden_layers()));
        all.final_norm.0 = "model.final_layernorm";
        all.head.bias = true;
        Ok(all)
    },
    ..llama::LLAMA
};
