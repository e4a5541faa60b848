//! T5 (Raffel et al. 2020), T5 1.1 and Flan-T5: an encoder and a decoder with RMSNorm, a learned bias by distance in the scores,
//! which no factor scales, and an MLP with ReLU or a gate.

use std::sync::Arc;

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Depends, Whole};
use crate::keys::{Key, Section};
use crate::model::architecture::{
    Architecture, Attention, Encoder, Layer, Mlp, MlpLayers, Norm, Place, Projections, RelativeBias, Sees,
    alike,
};
use crate::model::config::{Dimensions, dimension};
use crate::ops::activation::Activation;
use crate::ops::attention::Scores;
use crate::ops::attention::relative::Buckets;

const OWN: [Key; 14] = [
    dimension("hidden_size"),
    dimension("intermediate_size"),
    dimension("num_hidden_layers"),
    dimension("num_decoder_layers"),
    dimension("num_attention_heads"),
    dimension("head_dim").default(Whole(64)),
    dimension("vocab_size"),
    dimension("relative_attention_num_buckets"),
    dimension("relative_attention_max_distance"),
    dimension("rms_norm_eps"),
    dimension("activation").default(Depends("\"relu\"")),
    dimension("tie_word_embeddings").default(Bool(true)),
    dimension("scale_decoder_outputs"),
    dimension("decoder_start_token_id"),
];

pub const T5: Family = Family {
    kind: "t5",
    class: "T5ForConditionalGeneration",
    presets: &[
        ("t5-small", include_str!("presets/t5-small.json")),
        ("t5-base", include_str!("presets/t5-base.json")),
        ("t5-large", include_str!("presets/t5-large.json")),
        ("t5-3b", include_str!("presets/t5-3b.json")),
        ("t5-11b", include_str!("presets/t5-11b.json")),
        ("t5-v1_1-small", include_str!("presets/t5-v1_1-small.json")),
        ("t5-v1_1-base", include_str!("presets/t5-v1_1-base.json")),
        ("t5-v1_1-large", include_str!("presets/t5-v1_1-large.json")),
        ("t5-v1_1-xl", include_str!("presets/t5-v1_1-xl.json")),
        ("t5-v1_1-xxl", include_str!("presets/t5-v1_1-xxl.json")),
    ],
    section: Section::of("model", "kind", &["t5"]).with(
        "An encoder and a decoder with RMSNorm, scores with a learned bias by distance, and a ReLU or gated GELU MLP.",
        &OWN,
    ),
    in_file: &[
        ("hidden_size", "d_model"),
        ("intermediate_size", "d_ff"),
        ("num_hidden_layers", "num_layers"),
        ("num_attention_heads", "num_heads"),
        ("head_dim", "d_kv"),
        ("rms_norm_eps", "layer_norm_epsilon"),
    ],
    activation: ("feed_forward_proj", "relu"),
    activations: &["relu", "gelu", "gelu_new", "silu", "gated-relu", "gated-gelu", "gated-gelu_new", "gated-silu"],
    fixed: &[("is_encoder_decoder", Bool(true)), ("is_decoder", Bool(false))],
    operators: &["swiglu", "attention", "loss", "norm", "gelu"],
    pads: false,
    read: |file, written| {
        if !file.has("decoder_start_token_id") {
            let start = file.get("pad_token_id").cloned();
            written.extend(start.map(|start| ("decoder_start_token_id".into(), start)));
        }
        Ok(())
    },
    complete,
    architecture,
    ..llama::LLAMA
};

/// The largest distance of a table of buckets.
const FARTHEST: usize = 1 << 20;

fn complete(dimensions: &mut Dimensions) -> Result<(), String> {
    let Buckets { count, max_distance, .. } = buckets(dimensions, true);
    if count < 4 || max_distance <= count / 2 || max_distance > FARTHEST {
        return Err(format!(
            "relative_attention_num_buckets {count} must be 4 or more, and relative_attention_max_distance {max_distance} \
             more than half of it and at most {FARTHEST}"
        ));
    }
    if dimensions.decoder_start_token_id() >= dimensions.vocab_size() {
        return Err("decoder_start_token_id is beyond vocab_size; make it smaller".into());
    }
    let (layers, tied) = (dimensions.num_hidden_layers(), dimensions.tie_word_embeddings());
    dimensions.num_decoder_layers.get_or_insert(layers);
    dimensions.scale_decoder_outputs.get_or_insert(tied);
    Ok(())
}

fn buckets(of: &Dimensions, bidirectional: bool) -> Buckets {
    let (count, max_distance) = (of.relative_attention_num_buckets(), of.relative_attention_max_distance());
    Buckets { count, max_distance, bidirectional }
}

fn architecture(of: &Dimensions) -> Result<Architecture, String> {
    let bias = |name, bidirectional| RelativeBias {
        name,
        buckets: buckets(of, bidirectional),
        heads: of.num_attention_heads(),
    };
    let mut all = llama::around(of, layers(of)?);
    all.embedding.name = "shared";
    (all.blocks, all.final_norm.0) = ("decoder.block", "decoder.final_layer_norm");
    // Distances have no end.
    all.max_positions = i32::MAX as usize;
    if of.scale_decoder_outputs() {
        all.head.logits.scale = (of.hidden_size() as f64).sqrt().recip();
    }
    all.encoder = Some(Encoder {
        blocks: "encoder.block",
        layers: of.num_hidden_layers(),
        final_norm: ("encoder.final_layer_norm", all.final_norm.1),
        relative_biases: [
            bias("encoder.block.0.layer.0.SelfAttention.relative_attention_bias", true),
            bias("decoder.block.0.layer.0.SelfAttention.relative_attention_bias", false),
        ],
        start: of.decoder_start_token_id() as u32,
    });
    Ok(all)
}

/// Those of the encoder and those of the decoder.
fn layers(of: &Dimensions) -> Result<Vec<Arc<Layer>>, String> {
    let attention = |name, sees| Attention {
        name,
        projections: Projections::Apart(["q", "k", "v"]),
        output: "o",
        scores: Scores { scale: Some(1.0), ..Scores::default() },
        sees,
        relative_bias: sees != Sees::Encoder,
        ..Attention::even(of.num_attention_heads(), of.head_dim())
    };
    let (gated, activation) = activation(of)?;
    let encoder = Layer {
        norm: Norm::Rms { eps: of.rms_norm_eps(), plus_one: false },
        place: Place::Pre(["layer.0.layer_norm", "layer.1.layer_norm"]),
        residual_scale: None,
        attention: attention("layer.0.SelfAttention", Sees::All),
        cross_attention: None,
        mlp: Mlp {
            name: "layer.1.DenseReluDense",
            layers: match gated {
                true => MlpLayers::Gated(["wi_0", "wi_1", "wo"]),
                false => MlpLayers::Plain(["wi", "wo"]),
            },
            intermediate_size: of.intermediate_size(),
            activation,
            bias: false,
        },
    };
    let decoder = Layer {
        place: Place::Pre(["layer.0.layer_norm", "layer.2.layer_norm"]),
        attention: attention("layer.0.SelfAttention", Sees::Earlier),
        cross_attention: Some(("layer.1.layer_norm", attention("layer.1.EncDecAttention", Sees::Encoder))),
        mlp: Mlp { name: "layer.2.DenseReluDense", ..encoder.mlp },
        ..encoder.clone()
    };
    let stacks = [(encoder, of.num_hidden_layers()), (decoder, of.num_decoder_layers())];
    Ok(stacks.into_iter().flat_map(|(layer, count)| alike(layer, count)).collect())
}

/// Whether the MLP has a gate, and its activation; `gated-gelu` is the formula with tanh.
fn activation(of: &Dimensions) -> Result<(bool, Activation), String> {
    let name = of.activation.as_deref().unwrap_or("relu");
    let activation =
        |name: &str| Activation::named(name).ok_or_else(|| format!("activation {name} is not known"));
    match name.strip_prefix("gated-") {
        None => Ok((false, activation(name)?)),
        Some("gelu") => Ok((true, Activation::GeluTanh)),
        Some(name) => Ok((true, activation(name)?)),
    }
}
