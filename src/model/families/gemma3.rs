//! Gemma 3 (Gemma Team 2025), the text model: Gemma 2's layers with a norm of each head's query and key, a window in five of
//! six layers, and rotary positions of their own in these.

use std::sync::Arc;

use serde_json::json;

use super::{Family, gemma, gemma2, llama};
use crate::keys::key::DefaultValue::Number;
use crate::keys::{Key, Section};
use crate::model::architecture::{Attention, Layer, QkNorm, Rope, with_windows};
use crate::model::config::{Whole, dimension, joined, with_default};
use crate::ops::attention::Scores;

const OWN: [Key; 19] =
    with_default(joined(gemma2::KEYS, [dimension("rope_local_base_freq")]), "rope_theta", Number(1e6));

pub const GEMMA3: Family = Family {
    kind: "gemma3_text",
    class: "Gemma3ForCausalLM",
    whole: Some(Whole {
        kind: "gemma3",
        others: &[
            "vision_config",
            "mm_tokens_per_image",
            "boi_token_index",
            "eoi_token_index",
            "image_token_index",
        ],
        unused: &["final_logit_softcapping"],
    }),
    presets: &[
        ("gemma-3-270m", include_str!("presets/gemma-3-270m.json")),
        ("gemma-3-1b", include_str!("presets/gemma-3-1b.json")),
        ("gemma-3-4b", include_str!("presets/gemma-3-4b.json")),
        ("gemma-3-12b", include_str!("presets/gemma-3-12b.json")),
    ],
    section: Section::of("model", "kind", &["gemma3_text"]).with(
        "Gemma 2's layers with a norm of each head's query and key, a window in five of six layers, and rotary positions of \
         their own in these.",
        &OWN,
    ),
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    read: |file, written| {
        // Files of published models leave out what is transformers' default.
        file.by_default(written, &[("hidden_size", 2304), ("intermediate_size", 9216), ("head_dim", 256)]);
        file.by_default(written, &[("num_hidden_layers", 26), ("num_attention_heads", 8)]);
        file.by_default(written, &[("num_key_value_heads", 4), ("sliding_window", 4096)]);
        file.by_default(written, &[("vocab_size", 262_208), ("max_position_embeddings", 131_072)]);
        file.only("sliding_window_pattern", json!(6))?;
        file.only("_sliding_window_pattern", json!(6))?;
        file.read_ropes_by_type(&GEMMA3, written)
    },
    complete: |dimensions| llama::complete(dimensions, 131_072),
    architecture: |of| {
        let mut layer = gemma2::layer(of)?;
        layer.attention.qk_norm = Some(QkNorm { names: ["q_norm", "k_norm"], norm: layer.norm, by_head: true });
        let mut layers = with_windows(&layer, of.windows(|layer| !(layer + 1).is_multiple_of(6))?);
        let local = Some(Rope::halves(of.head_dim(), of.rope_local_base_freq()));
        let scores = Scores { window: of.sliding_window, ..layer.attention.scores };
        let attention = Attention { scores, rope: local, ..layer.attention.clone() };
        let slides = Arc::new(Layer { attention, ..layer });
        let with_window = layers.iter_mut().filter(|layer| layer.attention.scores.window.is_some());
        with_window.for_each(|layer| *layer = slides.clone());
        let mut architecture = gemma::around(of, layers);
        architecture.head.logits.soft_cap = of.final_logit_softcapping;
        Ok(architecture)
    },
    ..gemma2::GEMMA2
};
