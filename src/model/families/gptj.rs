//! GPT-J (Wang and Komatsuzaki 2021): attention and a GELU MLP read the same LayerNorm, and both are added to the residual
//! stream. Rotary positions turn a part of each head, in pairs of neighbours. The head has a bias.

use super::Family;
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Bool, Depends};
use crate::model::architecture::{
    Architecture, Attention, Embedding, Head, Layer, Mlp, MlpLayers, Norm, Place, Positions, Projections,
    Rope, alike,
};
use crate::model::config::{Dimensions, dimension};
use crate::ops::activation::Activation;
use crate::ops::dense::WeightLayout;
use crate::ops::rope::{Pairs, Scaling};

pub const GPTJ: Family = Family {
    kind: "gptj",
    class: "GPTJForCausalLM",
    presets: &[("gpt-j-6b", include_str!("presets/gpt-j-6b.json"))],
    section: Section::of("model", "kind", &["gptj"]).with(
        "Attention and a GELU MLP that read the same LayerNorm, rotary positions on a part of each head, and a head with a \
         bias.",
        &[
            dimension("hidden_size"),
            dimension("intermediate_size").default(Depends("4 x hidden_size")),
            dimension("num_hidden_layers"),
            dimension("num_attention_heads"),
            dimension("rotary_dim"),
            dimension("vocab_size"),
            dimension("max_position_embeddings"),
            dimension("layer_norm_eps"),
            dimension("tie_word_embeddings"),
        ],
    ),
    in_file: &[
        ("hidden_size", "n_embd"),
        ("intermediate_size", "n_inner"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("max_position_embeddings", "n_positions"),
        ("layer_norm_eps", "layer_norm_epsilon"),
    ],
    activation: ("activation_function", "gelu_new"),
    activations: &["gelu_new"],
    fixed: &[("rotary", Bool(true))],
    window_switch: None,
    operators: &["gelu", "attention", "loss", "norm", "rope"],
    pads: false,
    padding: None,
    read: |file, _| match file.has("rotary_dim") && file.get("rotary_dim").is_none() {
        true => Err("rotary_dim is null, which transformers does not load either; write how many elements of each head \
                     rotary positions turn"
            .into()),
        false => Ok(()),
    },
    complete,
    architecture,
};

fn complete(dimensions: &mut Dimensions) -> Result<(), String> {
    let (head_dim, turned) = (dimensions.even_head_dim()?, dimensions.rotary_dim());
    if !turned.is_multiple_of(2) || turned > head_dim {
        return Err(format!(
            "rotary_dim {turned} of heads of {head_dim} elements: rotary positions turn elements in pairs; make \
             it even and at most {head_dim}"
        ));
    }
    dimensions.refuse_tied("GPT-J")?;
    let hidden_size = dimensions.hidden_size();
    dimensions.intermediate_size.get_or_insert(4 * hidden_size);
    Ok(())
}

fn architecture(of: &Dimensions) -> Result<Architecture, String> {
    let (hidden, heads) = (of.hidden_size(), of.num_attention_heads());
    let norm = Norm::Layer { eps: of.layer_norm_eps() };
    let pairs = Pairs { head_dim: hidden / heads, dimension: of.rotary_dim(), neighbours: true };
    let layer = Layer {
        norm,
        place: Place::Parallel("ln_1", None),
        residual_scale: None,
        attention: Attention {
            name: "attn",
            projections: Projections::Apart(["q_proj", "k_proj", "v_proj"]),
            output: "out_proj",
            rope: Some(Rope { pairs, theta: 10_000.0, scaling: Scaling::None }),
            ..Attention::even(heads, hidden / heads)
        },
        mlp: Mlp {
            name: "mlp",
            layers: MlpLayers::Plain(["fc_in", "fc_out"]),
            intermediate_size: of.intermediate_size(),
            activation: Activation::GeluTanh,
            bias: true,
        },
    };
    Ok(Architecture {
        vocab_size: of.vocab_size(),
        hidden_size: hidden,
        max_positions: of.max_position_embeddings(),
        embedding: Embedding { name: "transformer.wte", scale: None, positions: Positions::None },
        blocks: "transformer.h",
        layers: alike(layer, of.num_hidden_layers()),
        final_norm: ("transformer.ln_f", norm),
        head: Head { bias: true, ..Head::LM_HEAD },
        layout: WeightLayout::OutIn,
        small_residual_weights: false,
    })
}
