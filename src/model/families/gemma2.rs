//! Gemma 2 (Gemma Team 2024): Gemma's layers with norms before and after attention and the MLP, a window in every other
//! layer, and bounded scores and logits.

use super::{Family, gemma};
use crate::keys::key::DefaultValue::{Bool, Number, Word};
use crate::keys::{Key, Section};
use crate::model::architecture::{Layer, Place, with_windows};
use crate::model::config::{Dimensions, dimension, joined};

/// The dimensions of Gemma 2 and 3.
pub const KEYS: [Key; 18] = joined(
    gemma::KEYS,
    [
        dimension("sliding_window"),
        dimension("layer_types"),
        dimension("query_pre_attn_scalar"),
        dimension("attn_logit_softcapping"),
        dimension("final_logit_softcapping"),
    ],
);

pub const GEMMA2: Family = Family {
    kind: "gemma2",
    class: "Gemma2ForCausalLM",
    presets: &[],
    section: Section::of("model", "kind", &["gemma2"]).with(
        "Gemma's layers with norms before and after attention and the MLP, a window in every other layer, and bounded scores \
         and logits.",
        &KEYS,
    ),
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    fixed: &[
        ("hidden_act", Word("gelu_pytorch_tanh")),
        ("mlp_bias", Bool(false)),
        ("partial_rotary_factor", Number(1.0)),
        ("use_bidirectional_attention", Bool(false)),
    ],
    read: |file, written| {
        file.by_default(written, &[("head_dim", 256), ("num_key_value_heads", 4), ("sliding_window", 4096)]);
        file.by_default(written, &[("attn_logit_softcapping", 50), ("final_logit_softcapping", 30)]);
        file.read_rope(&GEMMA2, None, written)
    },
    architecture: |of| {
        let windows = of.windows(|layer| layer.is_multiple_of(2))?;
        let mut architecture = gemma::around(of, with_windows(&layer(of)?, windows));
        architecture.head.logits.soft_cap = of.final_logit_softcapping;
        Ok(architecture)
    },
    ..gemma::GEMMA
};

/// Gemma's layer with norms before and after.
///
/// # Errors
/// When its rotary positions cannot be read.
pub fn layer(of: &Dimensions) -> Result<Layer, String> {
    let mut layer = gemma::layer(of)?;
    layer.place = Place::PreAndPost([
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ]);
    layer.attention.scores.scale = Some((of.query_pre_attn_scalar() as f64).sqrt().recip());
    layer.attention.scores.soft_cap = of.attn_logit_softcapping;
    Ok(layer)
}
