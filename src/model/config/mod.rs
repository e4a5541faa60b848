//! Dimensions of the language models: from a preset, from keys of the recipe, or from a Hugging
//! Face `config.json`.

mod gpt2;
mod hugging_face;
mod llama;
mod presets;
mod section;

#[cfg(test)]
mod tests;

pub use gpt2::{Gpt2Config, Positions};
pub use hugging_face::from_hugging_face;
pub use llama::LlamaConfig;
pub use section::{LanguageModel, SECTION};

use crate::params::NamedShape;

use crate::measure::elements;

/// A language model's architecture with its dimensions.
#[derive(Clone, Debug, PartialEq)]
pub enum Architecture {
    /// [`LlamaConfig`] with biases on the query, key and value projections.
    Qwen2(LlamaConfig),
    Llama(LlamaConfig),
    Gpt2(Gpt2Config),
}

impl Architecture {
    /// The name in `model.kind` and in `model_type` of `config.json`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Qwen2(_) => "qwen2",
            Self::Llama(_) => "llama",
            Self::Gpt2(_) => "gpt2",
        }
    }

    /// Every parameter tensor; a tied head appears once, as the embedding.
    pub fn tensors(&self) -> Vec<NamedShape> {
        match self {
            Self::Qwen2(config) | Self::Llama(config) => config.tensors(),
            Self::Gpt2(config) => config.tensors(),
        }
    }
}

/// Why a model's dimensions could not be resolved: a file, a key and what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Elements of these tensors outside of the layers and of those in each layer, at most `u64::MAX`.
fn parameters(outside: &[&[usize]], layers: usize, inside: &[&[usize]]) -> u64 {
    let all = elements(inside).saturating_mul(layers as u128).saturating_add(elements(outside));
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// Takes required keys out of their options and names all that are missing at once.
#[derive(Default)]
struct Required {
    missing: Vec<&'static str>,
}

impl Required {
    fn take(&mut self, name: &'static str, value: Option<usize>) -> usize {
        value.unwrap_or_else(|| {
            self.missing.push(name);
            // Never used: `check` fails.
            1
        })
    }

    fn check(self) -> Result<(), ConfigError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(ConfigError::new(format!(
            "model dimensions are missing: {}; write them or name a `preset`",
            self.missing.join(", ")
        )))
    }
}

/// Elements per attention head, where they are not written.
fn head_dim(hidden_size: usize, heads: usize) -> Result<usize, ConfigError> {
    if !hidden_size.is_multiple_of(heads) {
        return Err(ConfigError::new(format!(
            "hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}; change one of them"
        )));
    }
    Ok(hidden_size / heads)
}
