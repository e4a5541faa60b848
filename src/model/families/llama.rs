//! Llama (Touvron et al. 2023) and Qwen2 (Yang et al. 2024): RMSNorm, rotary positions, grouped-query attention and SwiGLU.
//! Qwen2 has biases on q, k and v.

mod mlp;

use burn::module::Module;
use burn::tensor::Tensor;
use serde_json::{Map, Value, json};

use mlp::Mlp;

use super::Family;
use crate::keys::key::DefaultValue::{Depends, Number};
use crate::keys::values::{COUNT, LAYERS, POSITIVE, Values};
use crate::keys::{Key, Section};
use crate::model::config::{ConfigFile, dimensions, head_dim, size, tied};
use crate::model::language::parts::{Linear, Norm, NormKind, adds_residual, linear_cost};
use crate::model::language::{
    Block, Context, DecoderSizes, LayerCache, Outline, Positions, RotaryAttention, RotarySizes,
};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::rope::Pairs;
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

dimensions! {
    /// Dimensions of a Llama-like decoder.
    LlamaConfig, LlamaKeys {
        /// Columns of the residual stream.
        hidden_size: usize = size(COUNT), "hidden_size";
        /// Columns inside the MLP.
        intermediate_size: usize = size(COUNT), "intermediate_size";
        /// Transformer blocks.
        num_hidden_layers: usize = size(LAYERS).called("layers"), "num_hidden_layers";
        /// Query heads.
        num_attention_heads: usize = size(COUNT).called("heads"), "num_attention_heads";
        /// Key and value heads; a divisor of the query heads.
        num_key_value_heads: usize =
            size(COUNT).default(Depends("num_attention_heads")), "num_key_value_heads";
        /// Elements of one head; even.
        head_dim: usize = size(COUNT).default(Depends("hidden_size / num_attention_heads")), "head_dim";
        /// Rows of the embedding.
        vocab_size: usize =
            size(COUNT).called("vocabulary").follows(&["model.preset", "data.vocab_size"]), "vocab_size";
        /// Longest sequence, in tokens.
        max_position_embeddings: usize = size(COUNT)
            .default(Depends("32768 for qwen2, 2048 for llama"))
            .called("longest sequence"), "max_position_embeddings";
        /// Base of the rotary wavelengths.
        rope_theta: f64 = size(POSITIVE).default(Number(10_000.0)), "";
        /// Added to the mean square before its root.
        rms_norm_eps: f64 = size(POSITIVE).default(Number(1e-6)), "rms_norm_eps";
        /// Whether the output projection is the embedding.
        tie_word_embeddings: bool = tied(false), "tie_word_embeddings";
        /// Whether the query, key and value projections have biases; the kind decides it.
        attention_bias: bool = Key::method(Values::Bool)
            .default(Depends("true for qwen2, false for llama"))
            .follows(&["model.kind", "model.preset"]), "";
    }
}

impl LlamaConfig {
    fn shape(&self) -> DecoderSizes {
        let (kv_heads, head_dim) = (self.num_key_value_heads, self.head_dim);
        DecoderSizes { kv_heads, head_dim, gated: true, ..self.sizes() }
    }

    fn attention(&self) -> RotarySizes {
        self.shape().rotary(Pairs::halves(self.head_dim), self.attention_bias)
    }
}

/// `BIASES`: whether the query, key and value projections have biases.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaLike<const BIASES: bool>;

pub type Llama = LlamaLike<false>;
pub type Qwen2 = LlamaLike<true>;

impl<const BIASES: bool> Family for LlamaLike<BIASES> {
    const KIND: &'static str = if BIASES { "qwen2" } else { "llama" };

    const PRESETS: &'static [(&'static str, &'static str)] = if BIASES {
        &[
            ("qwen2.5-0.5b", include_str!("presets/qwen2.5-0.5b.json")),
            ("qwen2.5-1.5b", include_str!("presets/qwen2.5-1.5b.json")),
            ("qwen2.5-3b", include_str!("presets/qwen2.5-3b.json")),
            ("qwen2.5-7b", include_str!("presets/qwen2.5-7b.json")),
        ]
    } else {
        &[("smollm2-135m", include_str!("presets/smollm2-135m.json"))]
    };

    const SECTION: Section = Section::of("model", "kind", &["qwen2", "llama"]).with(
        "RMSNorm, rotary positions, grouped-query attention and SwiGLU; qwen2 with biases in attention.",
        LlamaKeys::KEYS,
    );

    const IN_FILE: &'static [&'static str] = LlamaKeys::IN_FILE;

    const OPERATORS: &'static [&'static str] = &["swiglu", "attention", "loss", "norm", "rope"];

    const LAYOUT: WeightLayout = WeightLayout::OutIn;

    const PADS: bool = true;

    type Config = LlamaConfig;
    type Keys = LlamaKeys;
    type Block = Layer;

    fn complete(keys: &mut LlamaKeys) -> Result<(), String> {
        let [hidden_size, heads] =
            [keys.hidden_size, keys.num_attention_heads].map(Option::unwrap_or_default);
        let kv_heads = *keys.num_key_value_heads.get_or_insert(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}; change one of \
                 them"
            ));
        }
        let head_dim = keys.head_dim.map_or_else(|| head_dim(hidden_size, heads), Ok)?;
        keys.head_dim = Some(head_dim);
        if !head_dim.is_multiple_of(2) {
            return Err(format!(
                "head_dim {head_dim} is odd, and rotary positions turn elements in pairs; make it even"
            ));
        }
        if *keys.attention_bias.get_or_insert(BIASES) != BIASES {
            return Err(format!(
                "attention_bias is {BIASES} for kind = \"{}\": qwen2 has biases on the query, key and value \
                 projections, llama has none; remove the key or change `kind`",
                Self::KIND
            ));
        }
        keys.max_position_embeddings.get_or_insert(if BIASES { 32_768 } else { 2048 });
        Ok(())
    }

    fn read(file: &ConfigFile, written: &mut Map<String, Value>) -> Result<(), String> {
        file.only("hidden_act", json!("silu"))?;
        file.only("use_sliding_window", json!(false))?;
        file.only("use_mrope", json!(false))?;
        file.only("mlp_bias", json!(false))?;
        // transformers refuses it, or leaves it out, by its version.
        file.only("partial_rotary_factor", json!(1.0))?;
        if !BIASES {
            // Llama's key covers the output projection too, which Qwen2 has without a bias.
            file.only("attention_bias", json!(false))?;
        }
        if let Some(types) = file.get("layer_types") {
            let layers = types.as_array().ok_or("layer_types must be a list with the type of each layer")?;
            for layer in layers {
                ConfigFile::refuse_unless("layer_types", layer, &json!("full_attention"))?;
            }
        }
        if BIASES && !file.has("num_key_value_heads") {
            // transformers' default for an absent key; a null means as many as query heads.
            written.insert("num_key_value_heads".into(), json!(32));
        }
        if let Some(theta) = file.rope_theta()? {
            written.insert("rope_theta".into(), json!(theta));
        }
        Ok(())
    }

    fn write(config: &LlamaConfig, file: &mut Map<String, Value>) {
        let architecture = if BIASES { "Qwen2ForCausalLM" } else { "LlamaForCausalLM" };
        file.insert("architectures".into(), json!([architecture]));
        file.insert("hidden_act".into(), json!("silu"));
        file.insert("rope_theta".into(), json!(config.rope_theta));
    }

    fn outline(config: &LlamaConfig) -> Outline {
        Outline {
            shape: config.shape(),
            tokens: "model.embed_tokens",
            blocks: "model.layers",
            norm: "model.norm",
            norm_kind: NormKind::Rms(config.rms_norm_eps),
            positions: Positions::Rotary { pairs: config.attention().pairs, theta: config.rope_theta },
            head_bias: false,
        }
    }

    fn block_operators(config: &LlamaConfig, setting: &Setting, tuning: &Tuning) -> Vec<Cost> {
        let outline = Self::outline(config);
        let [hidden, inner] = [config.hidden_size, config.intermediate_size].map(|size| size as u64);
        let sizes = config.attention().of_rank(setting);
        let [queries, _] = sizes.columns();
        let [projections, attention] = RotaryAttention::cost(setting, tuning, &sizes);
        let output =
            linear_cost(setting, tuning, ("o_proj", Side::Inputs), [queries, hidden], false, Self::LAYOUT);
        let mlp = mlp::cost(setting, tuning, [hidden, setting.part(inner)]);
        vec![
            outline.residual_cost(
                setting,
                vec![projections, attention, output],
                adds_residual(setting, tuning, "o_proj"),
            ),
            outline.residual_cost(setting, vec![mlp], mlp::adds_residual(setting, tuning)),
        ]
    }
}

#[derive(Module, Debug)]
pub struct Layer {
    input_layernorm: Norm,
    self_attn: Attention,
    post_attention_layernorm: Norm,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Attention {
    heads: RotaryAttention,
    o_proj: Linear,
}

impl Block for Layer {
    type Config = LlamaConfig;

    fn new(config: &LlamaConfig, source: &Source) -> Self {
        let (hidden, inner, sizes) = (config.hidden_size, config.intermediate_size, config.attention());
        let [queries, _] = sizes.columns();
        let norm = |name| Norm::new(&source.at(name), hidden, NormKind::Rms(config.rms_norm_eps));
        let attention = source.at("self_attn");
        Self {
            input_layernorm: norm("input_layernorm"),
            self_attn: Attention {
                heads: RotaryAttention::new(&attention, &sizes),
                o_proj: Linear::new(
                    &attention.at("o_proj").divided_by(Side::Inputs),
                    queries as usize,
                    hidden,
                    false,
                ),
            },
            post_attention_layernorm: norm("post_attention_layernorm"),
            mlp: Mlp::new(&source.at("mlp"), hidden, inner),
        }
    }

    fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        let computation = &context.computation;
        let normal = context.copied(self.input_layernorm.forward(x.clone(), computation));
        let o = self.self_attn.heads.forward(normal, context, cache);
        let x = self.self_attn.o_proj.forward_onto(x, o, context);
        let normal = self.post_attention_layernorm.forward(x.clone(), computation);
        self.mlp.forward_onto(x, normal, context)
    }
}
