//! Granite (IBM 2024): Llama with numbers that multiply its embedding, its scores, what is added to the residual stream, and
//! its logits.

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::alike;
use crate::model::config::{dimension, joined};

const OWN: [Key; 18] = joined(
    llama::KEYS,
    [
        dimension("embedding_multiplier"),
        dimension("attention_multiplier"),
        dimension("residual_multiplier"),
        dimension("logits_scaling"),
        dimension("attention_bias").default(Bool(false)),
        dimension("mlp_bias").default(Bool(false)),
    ],
);

pub const GRANITE: Family = Family {
    kind: "granite",
    class: "GraniteForCausalLM",
    presets: &[],
    section: Section::of("model", "kind", &["granite"]).with(
        "Llama with numbers that multiply its embedding, its scores, what is added to the residual stream, and its logits.",
        &OWN,
    ),
    fixed: &[("partial_rotary_factor", Number(1.0))],
    read: |file, written| file.read_rope(&GRANITE, None, written),
    architecture: |of| {
        let mut layer = llama::layer(of)?;
        layer.residual_scale = Some(of.residual_multiplier()).filter(|scale| *scale != 1.0);
        layer.attention.scores.scale = Some(of.attention_multiplier());
        layer.attention.output_bias = of.attention_bias();
        let mut all = llama::around(of, alike(layer, of.num_hidden_layers()));
        all.embedding.scale = Some(of.embedding_multiplier()).filter(|scale| *scale != 1.0);
        all.head.logits.scale = of.logits_scaling().recip();
        Ok(all)
    },
    ..llama::LLAMA
};
