//! [`LlamaConfig`]: RMSNorm, rotary positions, grouped-query attention and SwiGLU. Serves Llama
//! and, with biases on the query, key and value projections, Qwen2.

use serde::{Deserialize, Serialize};

use super::section::{size, tied};
use super::{ConfigError, Required, head_dim, parameters};
use crate::params::{NamedShape, WeightsFrom};
use crate::words::key::{COUNT, DefaultValue, LAYERS, POSITIVE, Section, Values};
use crate::words::values;

/// Dimensions of a Llama-like decoder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LlamaConfig {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; a divisor of the query heads.
    pub num_key_value_heads: usize,
    /// Elements of one head; even.
    pub head_dim: usize,
    /// Longest sequence, in tokens.
    pub max_position_embeddings: usize,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Added to the mean square before its root.
    pub rms_norm_eps: f64,
    /// Whether the output projection is the embedding.
    pub tie_word_embeddings: bool,
    /// Whether the query, key and value projections have biases.
    pub attention_bias: bool,
}

/// The keys of `[model]` as written; the first two are [`super::LanguageModel`]'s own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LlamaKeys {
    pub preset: Option<String>,
    pub weights: Option<WeightsFrom>,
    #[serde(deserialize_with = "values::count")]
    pub vocab_size: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    pub hidden_size: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    pub intermediate_size: Option<usize>,
    #[serde(deserialize_with = "values::layers")]
    pub num_hidden_layers: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    pub num_attention_heads: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    pub num_key_value_heads: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    pub head_dim: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    pub max_position_embeddings: Option<usize>,
    #[serde(deserialize_with = "values::positive")]
    pub rope_theta: Option<f64>,
    #[serde(deserialize_with = "values::positive")]
    pub rms_norm_eps: Option<f64>,
    pub tie_word_embeddings: Option<bool>,
    pub attention_bias: Option<bool>,
}

impl LlamaKeys {
    /// Fills in what is not written, as transformers does.
    pub fn finish(self, kind: &str) -> Result<LlamaConfig, ConfigError> {
        let attention_bias = kind == "qwen2";
        let mut required = Required::default();
        let vocab_size = required.take("vocab_size", self.vocab_size);
        let hidden_size = required.take("hidden_size", self.hidden_size);
        let intermediate_size = required.take("intermediate_size", self.intermediate_size);
        let num_hidden_layers = required.take("num_hidden_layers", self.num_hidden_layers);
        let num_attention_heads = required.take("num_attention_heads", self.num_attention_heads);
        required.check()?;

        let num_key_value_heads = self.num_key_value_heads.unwrap_or(num_attention_heads);
        if !num_attention_heads.is_multiple_of(num_key_value_heads) {
            return Err(ConfigError::new(format!(
                "num_attention_heads {num_attention_heads} is not a multiple of num_key_value_heads \
                 {num_key_value_heads}; change one of them"
            )));
        }
        let head_dim = self.head_dim.map_or_else(|| head_dim(hidden_size, num_attention_heads), Ok)?;
        if !head_dim.is_multiple_of(2) {
            return Err(ConfigError::new(format!(
                "head_dim {head_dim} is odd, and rotary positions turn elements in pairs; make it even"
            )));
        }
        if self.attention_bias.is_some_and(|written| written != attention_bias) {
            return Err(ConfigError::new(format!(
                "attention_bias is {attention_bias} for kind = \"{kind}\": qwen2 has biases on the query, \
                 key and value projections, llama has none; remove the key or change `kind`"
            )));
        }
        Ok(LlamaConfig {
            vocab_size,
            hidden_size,
            intermediate_size,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            max_position_embeddings: self.max_position_embeddings.unwrap_or(if kind == "qwen2" {
                32_768
            } else {
                2048
            }),
            rope_theta: self.rope_theta.unwrap_or(10_000.0),
            rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-6),
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(false),
            attention_bias,
        })
    }
}

impl LlamaConfig {
    pub const SECTION: Section = Section::of(
        "model",
        "kind",
        &["qwen2", "llama"],
        "RMSNorm, rotary positions, grouped-query attention and SwiGLU; qwen2 with biases in attention.",
        &[
            size("hidden_size", COUNT, DefaultValue::Required, "Columns of the residual stream."),
            size("intermediate_size", COUNT, DefaultValue::Required, "Columns inside the MLP."),
            size("num_hidden_layers", LAYERS, DefaultValue::Required, "Transformer blocks.").called("layers"),
            size("num_attention_heads", COUNT, DefaultValue::Required, "Query heads.").called("heads"),
            size(
                "num_key_value_heads",
                COUNT,
                DefaultValue::Depends("num_attention_heads"),
                "Key and value heads; a divisor of the query heads.",
            ),
            size(
                "head_dim",
                COUNT,
                DefaultValue::Depends("hidden_size / num_attention_heads"),
                "Elements of one head; even.",
            ),
            size("vocab_size", COUNT, DefaultValue::Required, "Rows of the embedding.")
                .called("vocabulary")
                .follows(&["model.preset", "data.vocab_size"]),
            size(
                "max_position_embeddings",
                COUNT,
                DefaultValue::Depends("32768 of qwen2, 2048 of llama"),
                "Longest sequence, in tokens.",
            )
            .called("longest sequence"),
            size("rope_theta", POSITIVE, DefaultValue::Number(10_000.0), "Base of the rotary wavelengths."),
            size(
                "rms_norm_eps",
                POSITIVE,
                DefaultValue::Number(1e-6),
                "Added to the mean square before its root.",
            ),
            tied(DefaultValue::Bool(false)),
            size(
                "attention_bias",
                Values::Bool,
                DefaultValue::Depends("true of qwen2, false of llama"),
                "Whether the query, key and value projections have biases: a matter of the kind.",
            ),
        ],
    );

    /// Number of parameters; a tied head counts once.
    pub fn parameters(&self) -> u64 {
        let (vocab, hidden, inner) = (self.vocab_size, self.hidden_size, self.intermediate_size);
        let (queries, keys) = (self.num_attention_heads, self.num_key_value_heads);
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        let biases = usize::from(self.attention_bias);
        parameters(
            &[&[tables, vocab, hidden], &[hidden]],
            self.num_hidden_layers,
            &[
                &[2, hidden],
                &[2, queries, self.head_dim, hidden],
                &[2, keys, self.head_dim, hidden],
                &[biases, queries, self.head_dim],
                &[biases, 2, keys, self.head_dim],
                &[3, hidden, inner],
            ],
        )
    }

    /// Every parameter by its Hugging Face name, with its shape; weights are [out, in].
    pub fn tensors(&self) -> Vec<NamedShape> {
        let (hidden, inner) = (self.hidden_size, self.intermediate_size);
        let queries = self.num_attention_heads * self.head_dim;
        let keys = self.num_key_value_heads * self.head_dim;
        let mut out = vec![("model.embed_tokens.weight".into(), vec![self.vocab_size, hidden])];
        for layer in 0..self.num_hidden_layers {
            let mut add = |name: &str, shape: &[usize]| {
                out.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[hidden]);
            for (projection, rows) in [("q", queries), ("k", keys), ("v", keys)] {
                add(&format!("self_attn.{projection}_proj.weight"), &[rows, hidden]);
                if self.attention_bias {
                    add(&format!("self_attn.{projection}_proj.bias"), &[rows]);
                }
            }
            add("self_attn.o_proj.weight", &[hidden, queries]);
            add("post_attention_layernorm.weight", &[hidden]);
            add("mlp.gate_proj.weight", &[inner, hidden]);
            add("mlp.up_proj.weight", &[inner, hidden]);
            add("mlp.down_proj.weight", &[hidden, inner]);
        }
        out.push(("model.norm.weight".into(), vec![hidden]));
        if !self.tie_word_embeddings {
            out.push(("lm_head.weight".into(), vec![self.vocab_size, hidden]));
        }
        out
    }
}
