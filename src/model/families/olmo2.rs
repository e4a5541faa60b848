//! OLMo 2 (Walsh et al. 2025): Llama's parts with the norms after attention and the MLP, and norms of all queries and keys of
//! a token.

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{Place, QkNorm, alike};
use crate::model::config::{dimension, joined, with_default};

const OWN: [Key; 13] = with_default(
    joined(llama::KEYS, [dimension("attention_bias").default(Bool(false))]),
    "rms_norm_eps",
    Number(1e-5),
);

pub const OLMO2: Family = Family {
    kind: "olmo2",
    class: "Olmo2ForCausalLM",
    presets: &[
        ("olmo-2-1b", include_str!("presets/olmo-2-1b.json")),
        ("olmo-2-7b", include_str!("presets/olmo-2-7b.json")),
    ],
    section: Section::of("model", "kind", &["olmo2"]).with(
        "Llama's parts with the norms after attention and the MLP, and norms of a token's queries and keys.",
        &OWN,
    ),
    fixed: &[("mlp_bias", Bool(false)), ("partial_rotary_factor", Number(1.0))],
    padding: Some(1),
    read: |file, written| file.read_rope(&OLMO2, None, written),
    architecture: |of| {
        let mut layer = llama::layer(of)?;
        layer.place = Place::Post(["post_attention_layernorm", "post_feedforward_layernorm"]);
        layer.attention.output_bias = of.attention_bias();
        layer.attention.qk_norm =
            Some(QkNorm { names: ["q_norm", "k_norm"], norm: layer.norm, by_head: false });
        Ok(llama::around(of, alike(layer, of.num_hidden_layers())))
    },
    ..llama::LLAMA
};
