//! [`Gpt2Config`]: LayerNorm, absolute positions, multi-head attention with biases and a GELU
//! MLP (the tanh approximation, `gelu_new`).

use serde::{Deserialize, Serialize};

use super::section::{size, tied};
use super::{ConfigError, Required, head_dim, parameters};
use crate::params::{NamedShape, WeightsFrom};
use crate::words::key::{COUNT, DefaultValue, Key, LAYERS, POSITIVE, Section, Values};
use crate::words::values;

/// Dimensions of a GPT-2 decoder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpt2Config {
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    /// Longest sequence, in tokens; rows of the position embedding.
    pub max_position_embeddings: usize,
    /// Added to the variance before its root.
    pub layer_norm_eps: f64,
    pub positions: Positions,
    /// Whether the output projection is the token embedding.
    pub tie_word_embeddings: bool,
}

/// Where the vectors that mark a token's position come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// Parameters, one row per position.
    #[default]
    Learned,
    /// Fixed sines and cosines; no parameters.
    Sinusoidal,
}

/// The keys of `[model]` as written; the first two are [`super::LanguageModel`]'s own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gpt2Keys {
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
    pub max_position_embeddings: Option<usize>,
    #[serde(deserialize_with = "values::positive")]
    pub layer_norm_eps: Option<f64>,
    pub positions: Option<Positions>,
    pub tie_word_embeddings: Option<bool>,
}

impl Gpt2Keys {
    /// Fills in what is not written, as transformers does.
    pub fn finish(self) -> Result<Gpt2Config, ConfigError> {
        let mut required = Required::default();
        let vocab_size = required.take("vocab_size", self.vocab_size);
        let hidden_size = required.take("hidden_size", self.hidden_size);
        let num_hidden_layers = required.take("num_hidden_layers", self.num_hidden_layers);
        let num_attention_heads = required.take("num_attention_heads", self.num_attention_heads);
        required.check()?;
        head_dim(hidden_size, num_attention_heads)?;

        let positions = self.positions.unwrap_or_default();
        if positions == Positions::Sinusoidal && !hidden_size.is_multiple_of(2) {
            return Err(ConfigError::new(format!(
                "hidden_size {hidden_size} is odd, and sinusoidal positions come in pairs of sine and \
                 cosine; make it even"
            )));
        }
        Ok(Gpt2Config {
            vocab_size,
            hidden_size,
            intermediate_size: self.intermediate_size.unwrap_or(4 * hidden_size),
            num_hidden_layers,
            num_attention_heads,
            max_position_embeddings: self.max_position_embeddings.unwrap_or(1024),
            layer_norm_eps: self.layer_norm_eps.unwrap_or(1e-5),
            positions,
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(true),
        })
    }
}

impl Gpt2Config {
    pub const SECTION: Section = Section::of(
        "model",
        "kind",
        &["gpt2"],
        "LayerNorm, absolute positions, multi-head attention with biases and a GELU MLP.",
        &[
            size("hidden_size", COUNT, DefaultValue::Required, "Columns of the residual stream."),
            size(
                "intermediate_size",
                COUNT,
                DefaultValue::Depends("4 x hidden_size"),
                "Columns inside the MLP.",
            ),
            size("num_hidden_layers", LAYERS, DefaultValue::Required, "Transformer blocks.").called("layers"),
            size("num_attention_heads", COUNT, DefaultValue::Required, "Heads.").called("heads"),
            size("vocab_size", COUNT, DefaultValue::Required, "Rows of the token embedding.")
                .called("vocabulary")
                .follows(&["model.preset", "data.vocab_size"]),
            size("max_position_embeddings", COUNT, DefaultValue::Whole(1024), "Longest sequence, in tokens.")
                .called("longest sequence"),
            size(
                "layer_norm_eps",
                POSITIVE,
                DefaultValue::Number(1e-5),
                "Added to the variance before its root.",
            ),
            Key::method(
                "positions",
                Values::Words(&["learned", "sinusoidal"]),
                DefaultValue::Word("learned"),
                "Vectors that mark a token's position: parameters, or fixed sines and cosines.",
            )
            .reads(&[("", "{} positions")])
            .follows(&["model.preset"]),
            tied(DefaultValue::Bool(true)),
        ],
    );

    /// Elements of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Number of parameters; a tied head counts once.
    pub fn parameters(&self) -> u64 {
        let (vocab, hidden, inner) = (self.vocab_size, self.hidden_size, self.intermediate_size);
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        let positions = usize::from(self.positions == Positions::Learned) * self.max_position_embeddings;
        parameters(
            &[&[tables, vocab, hidden], &[positions, hidden], &[2, hidden]],
            self.num_hidden_layers,
            // Attention's weights and biases, the MLP's, and those of two norms.
            &[&[4, hidden, hidden], &[4, hidden], &[2, hidden, inner], &[inner], &[hidden], &[4, hidden]],
        )
    }

    /// Every parameter by its Hugging Face name, with its shape; the layers' weights are
    /// Conv1D's [in, out].
    pub fn tensors(&self) -> Vec<NamedShape> {
        let (hidden, inner) = (self.hidden_size, self.intermediate_size);
        let mut out = vec![("transformer.wte.weight".into(), vec![self.vocab_size, hidden])];
        if self.positions == Positions::Learned {
            out.push(("transformer.wpe.weight".into(), vec![self.max_position_embeddings, hidden]));
        }
        for layer in 0..self.num_hidden_layers {
            let mut add = |name: &str, shape: &[usize]| {
                out.push((format!("transformer.h.{layer}.{name}.weight"), shape.to_vec()));
                let columns = shape[shape.len() - 1];
                out.push((format!("transformer.h.{layer}.{name}.bias"), vec![columns]));
            };
            add("ln_1", &[hidden]);
            add("attn.c_attn", &[hidden, 3 * hidden]);
            add("attn.c_proj", &[hidden, hidden]);
            add("ln_2", &[hidden]);
            add("mlp.c_fc", &[hidden, inner]);
            add("mlp.c_proj", &[inner, hidden]);
        }
        out.push(("transformer.ln_f.weight".into(), vec![hidden]));
        out.push(("transformer.ln_f.bias".into(), vec![hidden]));
        if !self.tie_word_embeddings {
            out.push(("lm_head.weight".into(), vec![self.vocab_size, hidden]));
        }
        out
    }
}
