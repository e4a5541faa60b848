//! GPT-2 (Radford et al. 2019): LayerNorm, absolute positions, multi-head attention with biases and a GELU MLP
//! (the tanh approximation, `gelu_new`).

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Family;
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Depends, Number, Whole, Word};
use crate::keys::values::{COUNT, LAYERS, POSITIVE, Values};
use crate::model::config::{ConfigFile, dimensions, head_dim, method, size, tied};
use crate::model::language::parts::{Linear, Norm, NormKind, adds_residual, linear_cost};
use crate::model::language::{Block, Context, DecoderSizes, LayerCache, Outline, Positions, Prefix, attend};
use crate::ops::attention::{self, HeadSizes, attention_packed};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::gelu;
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

dimensions! {
    /// Dimensions of a GPT-2 decoder.
    Gpt2Config, Gpt2Keys {
        /// Columns of the residual stream.
        hidden_size: usize = size(COUNT), "n_embd";
        /// Columns inside the MLP.
        intermediate_size: usize = size(COUNT).default(Depends("4 x hidden_size")), "n_inner";
        /// Transformer blocks.
        num_hidden_layers: usize = size(LAYERS).called("layers"), "n_layer";
        /// Heads.
        num_attention_heads: usize = size(COUNT).called("heads"), "n_head";
        /// Rows of the token embedding.
        vocab_size: usize =
            size(COUNT).called("vocabulary").follows(&["model.preset", "data.vocab_size"]), "vocab_size";
        /// Longest sequence, in tokens.
        max_position_embeddings: usize =
            size(COUNT).default(Whole(1024)).called("longest sequence"), "n_positions";
        /// Added to the variance before its root.
        layer_norm_eps: f64 = size(POSITIVE).default(Number(1e-5)), "layer_norm_epsilon";
        /// Vectors that mark a token's position: parameters, or fixed sines and cosines.
        positions: LearnedOrSinusoidal =
            method(Values::Words(&["learned", "sinusoidal"]))
                .default(Word("learned")), "";
        /// Whether the output projection is the embedding.
        tie_word_embeddings: bool = tied(true), "tie_word_embeddings";
    }
}

/// Where the vectors that mark a token's position come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearnedOrSinusoidal {
    /// Parameters, one row per position.
    Learned,
    /// Fixed sines and cosines; no parameters.
    Sinusoidal,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Gpt2;

impl Family for Gpt2 {
    const KIND: &'static str = "gpt2";

    const PRESETS: &'static [(&'static str, &'static str)] = &[
        ("gpt2", include_str!("presets/gpt2.json")),
        ("gpt2-medium", include_str!("presets/gpt2-medium.json")),
        ("gpt2-large", include_str!("presets/gpt2-large.json")),
        ("gpt2-xl", include_str!("presets/gpt2-xl.json")),
    ];

    const SECTION: Section = Section::of("model", "kind", &["gpt2"]).with(
        "LayerNorm, absolute positions, multi-head attention with biases and a GELU MLP.",
        Gpt2Keys::KEYS,
    );

    const IN_FILE: &'static [&'static str] = Gpt2Keys::IN_FILE;

    const OPERATORS: &'static [&'static str] = &["gelu", "attention", "loss", "norm"];

    const LAYOUT: WeightLayout = WeightLayout::InOut;

    type Config = Gpt2Config;
    type Keys = Gpt2Keys;
    type Block = Layer;

    fn complete(keys: &mut Gpt2Keys) -> Result<(), String> {
        let [hidden_size, heads] =
            [keys.hidden_size, keys.num_attention_heads].map(Option::unwrap_or_default);
        head_dim(hidden_size, heads)?;
        let sinusoidal = keys.positions == Some(LearnedOrSinusoidal::Sinusoidal);
        if sinusoidal && !hidden_size.is_multiple_of(2) {
            return Err(format!(
                "hidden_size {hidden_size} is odd, and sinusoidal positions come in pairs of sine and cosine; \
                 make it even"
            ));
        }
        keys.intermediate_size.get_or_insert(4 * hidden_size);
        Ok(())
    }

    fn read(file: &ConfigFile, _written: &mut Map<String, Value>) -> Result<(), String> {
        file.only("activation_function", json!("gelu_new"))?;
        file.only("scale_attn_weights", json!(true))?;
        file.only("scale_attn_by_inverse_layer_idx", json!(false))?;
        file.only("reorder_and_upcast_attn", json!(false))?;
        file.only("add_cross_attention", json!(false))
    }

    fn write(_: &Gpt2Config, file: &mut Map<String, Value>) {
        file.insert("architectures".into(), json!(["GPT2LMHeadModel"]));
        file.insert("activation_function".into(), json!("gelu_new"));
    }

    fn outline(config: &Gpt2Config) -> Outline {
        let learned = config.positions == LearnedOrSinusoidal::Learned;
        let rows = config.max_position_embeddings;
        Outline {
            shape: DecoderSizes { portable: learned, ..config.sizes() },
            tokens: "transformer.wte",
            blocks: "transformer.h",
            norm: "transformer.ln_f",
            norm_kind: NormKind::Layer(config.layer_norm_eps),
            positions: match learned {
                true => Positions::Learned { name: "transformer.wpe", rows },
                false => Positions::Sinusoidal,
            },
            head_bias: false,
        }
    }

    fn block_operators(config: &Gpt2Config, setting: &Setting, tuning: &Tuning) -> Vec<Cost> {
        let outline = Self::outline(config);
        let [hidden, inner, heads] =
            [config.hidden_size, config.intermediate_size, config.num_attention_heads]
                .map(|size| size as u64);
        let head_dim = hidden / heads;
        let [inner, heads, columns] = [inner, heads, hidden].map(|size| setting.part(size));
        let sizes = HeadSizes { heads, kv_heads: heads, head_dim };
        let conv = |layer, sizes| linear_cost(setting, tuning, layer, sizes, true, Self::LAYOUT);
        let attention = attention::cost(setting, sizes);
        // Both last layers have this name.
        let in_product = adds_residual(setting, tuning, "c_proj");
        vec![
            outline.residual_cost(
                setting,
                vec![
                    conv(("c_attn", Side::Outputs { parts: 3 }), [hidden, 3 * columns]),
                    Prefix::attended(setting, tuning, [3 * columns, 2 * columns], attention),
                    conv(("c_proj", Side::Inputs), [columns, hidden]),
                ],
                in_product,
            ),
            outline.residual_cost(
                setting,
                vec![
                    conv(("c_fc", Side::Outputs { parts: 1 }), [hidden, inner]),
                    gelu::cost(setting, inner),
                    conv(("c_proj", Side::Inputs), [inner, hidden]),
                ],
                in_product,
            ),
        ]
    }
}

#[derive(Module, Debug)]
pub struct Layer {
    ln_1: Norm,
    attn: Attention,
    ln_2: Norm,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Attention {
    c_attn: Linear,
    prefix: Option<Prefix>,
    c_proj: Linear,
}

#[derive(Module, Debug)]
struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
}

impl Block for Layer {
    type Config = Gpt2Config;

    fn new(config: &Gpt2Config, source: &Source) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        // Of layers whose results are added up: smaller by √(2 · layers) (Radford et al. 2019).
        let deviation = source.deviation();
        let added = deviation / (2.0 * config.num_hidden_layers as f64).sqrt();
        let norm = |name| Norm::new(&source.at(name), hidden, NormKind::Layer(config.layer_norm_eps));
        let (attention, mlp) = (source.at("attn"), source.at("mlp"));
        let by_outputs = |source: Source, parts| source.divided_by(Side::Outputs { parts });
        let by_inputs = |source: Source| source.divided_by(Side::Inputs);
        Self {
            ln_1: norm("ln_1"),
            attn: Attention {
                c_attn: Linear::conv1d(&by_outputs(attention.at("c_attn"), 3), hidden, 3 * hidden, deviation),
                prefix: Prefix::new(&attention, hidden),
                c_proj: Linear::conv1d(&by_inputs(attention.at("c_proj")), hidden, hidden, added),
            },
            ln_2: norm("ln_2"),
            mlp: Mlp {
                c_fc: Linear::conv1d(&by_outputs(mlp.at("c_fc"), 1), hidden, inner, deviation),
                c_proj: Linear::conv1d(&by_inputs(mlp.at("c_proj")), inner, hidden, added),
            },
        }
    }

    fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        let Context { computation, heads, mask, .. } = context;
        let normal = context.copied(self.ln_1.forward(x.clone(), computation));
        let qkv = self.attn.c_attn.forward(normal, computation);
        let qkv = Prefix::within(&self.attn.prefix, qkv, context);
        let o = if cache.is_none() {
            attention_packed(qkv, *heads, mask, computation.arithmetic, (&computation.ops).into())
        } else {
            let columns = heads.columns();
            attend([0, 1, 2].map(|part| qkv.clone().narrow(1, part * columns, columns)), context, cache)
        };
        let x = self.attn.c_proj.forward_onto(x, o, context);
        let normal = context.copied(self.ln_2.forward(x.clone(), computation));
        let inner = self.mlp.c_fc.forward_gelu(normal, computation);
        self.mlp.c_proj.forward_onto(x, inner, context)
    }
}
