//! GPT-J (Wang and Komatsuzaki 2021): attention and a GELU MLP read the same LayerNorm, and both are added to the residual
//! stream. Rotary positions turn a part of each head, in pairs of neighbours. The head has a bias.

use super::{Family, gpt2, plain};
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Bool, Depends};
use crate::model::architecture::{Place, Projections, Rope, alike};
use crate::model::config::dimension;
use crate::ops::rope::{Pairs, Scaling};

const NAMES: plain::Names = plain::Names {
    norms: ["ln_1", ""],
    attention: ("attn", Projections::Apart(["q_proj", "k_proj", "v_proj"]), "out_proj"),
    mlp: ("mlp", ["fc_in", "fc_out"]),
};

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
    activations: &["gelu_new"],
    fixed: &[("rotary", Bool(true))],
    operators: &["gelu", "attention", "loss", "norm", "rope"],
    read: |file, _| match file.has("rotary_dim") && file.get("rotary_dim").is_none() {
        true => Err("rotary_dim is null, which transformers does not load either; write how many elements of each head \
                     rotary positions turn"
            .into()),
        false => Ok(()),
    },
    complete: |dimensions| {
        let (head_dim, turned) = (dimensions.even_head_dim()?, dimensions.rotary_dim());
        if !turned.is_multiple_of(2) || turned > head_dim {
            return Err(format!(
                "rotary_dim {turned} of heads of {head_dim} elements: rotary positions turn elements in pairs; make \
                 it even and at most {head_dim}"
            ));
        }
        dimensions.refuse_tied("GPT-J")?;
        dimensions.complete_intermediate_size();
        Ok(())
    },
    architecture: |of| {
        let mut layer = plain::layer(of, &NAMES, "gelu_new")?;
        layer.place = Place::Parallel(NAMES.norms[0], None);
        (layer.attention.bias, layer.attention.output_bias) = (false, false);
        let pairs =
            Pairs { head_dim: layer.attention.head_dim, dimension: of.rotary_dim(), neighbours: true };
        layer.attention.rope = Some(Rope { pairs, theta: 10_000.0, scaling: Scaling::None });
        let mut all = plain::around(of, alike(layer, of.num_hidden_layers()), plain::TRANSFORMER);
        all.head.bias = true;
        Ok(all)
    },
    ..gpt2::GPT2
};
