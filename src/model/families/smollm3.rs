//! SmolLM3 (Bakouch et al. 2025): Llama's layers, of which every fourth has no rotary positions.

use std::sync::Arc;

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{Attention, Layer};
use crate::model::config::{dimension, joined, with_default};

const OWN: [Key; 15] = with_default(
    with_default(
        joined(
            llama::KEYS,
            [
                dimension("no_rope_layers"),
                dimension("attention_bias").default(Bool(false)),
                dimension("mlp_bias").default(Bool(false)),
            ],
        ),
        "tie_word_embeddings",
        Bool(true),
    ),
    "rope_theta",
    Number(2e6),
);

pub const SMOLLM3: Family = Family {
    kind: "smollm3",
    class: "SmolLM3ForCausalLM",
    presets: &[("smollm3-3b", include_str!("presets/smollm3-3b.json"))],
    section: Section::of("model", "kind", &["smollm3"])
        .with("Llama's layers, of which every fourth has no rotary positions.", &OWN),
    padding: Some(128_004),
    read: |file, written| {
        file.refuse_windows()?;
        file.by_default(written, &[("num_key_value_heads", 4)]);
        match file.get("no_rope_layers") {
            Some(_) => _ = file.get("no_rope_layer_interval"),
            None => file.only("no_rope_layer_interval", 4.into())?,
        }
        file.read_rope(&SMOLLM3, None, written)
    },
    complete: |dimensions| llama::complete(dimensions, 32_768),
    architecture: |of| {
        let layers = of.num_hidden_layers();
        let turns: Vec<u8> = match &of.no_rope_layers {
            None => (1..=layers).map(|number| u8::from(!number.is_multiple_of(4))).collect(),
            Some(text) => serde_json::from_str(text)
                .map_err(|e| format!("no_rope_layers must be a list of 1 and 0, one of each layer: {e}"))?,
        };
        if turns.len() != layers || turns.iter().any(|turns| *turns > 1) {
            return Err(format!("no_rope_layers must have 1 or 0 of each of {layers} layers"));
        }
        let mut layer = llama::layer(of)?;
        layer.attention.output_bias = of.attention_bias();
        let without =
            Layer { attention: Attention { rope: None, ..layer.attention.clone() }, ..layer.clone() };
        let kinds = [Arc::new(without), Arc::new(layer)];
        Ok(llama::around(of, turns.into_iter().map(|turns| kinds[usize::from(turns)].clone()).collect()))
    },
    ..llama::LLAMA
};
