//! Networks: what `[model] kind` may name, and what a network gives the runner.

pub mod config;
pub mod cost;
pub mod generate;
pub mod language;
pub mod swiglu;

use std::path::Path;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::measure::Evaluation;
use crate::ops::cost::Setting;
use crate::params::WeightsFrom;
use crate::recipe::Cell;
use crate::residence::Blocks;
use crate::words::Rule;
pub use cost::{Outline, Workload};

use config::{Gpt2Config, LanguageModel, LlamaConfig};
use language::Shape;
use swiglu::SwigluConfig;

/// `[model]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    Swiglu(SwigluConfig),
    #[serde(deserialize_with = "LanguageModel::qwen2")]
    Qwen2(LanguageModel<LlamaConfig>),
    #[serde(deserialize_with = "LanguageModel::llama")]
    Llama(LanguageModel<LlamaConfig>),
    #[serde(deserialize_with = "LanguageModel::gpt2")]
    Gpt2(LanguageModel<Gpt2Config>),
}

/// A network that can be trained on batches of its own kind.
pub trait Network: Module + Sized {
    type Batch;

    /// The micro-batch's part of the step's mean loss, [1] in fp32.
    fn loss(&self, batch: &Self::Batch) -> Tensor<1>;

    /// The blocks whose weights and gradients live on the host and are not the module's.
    fn offloaded(&self) -> Option<&Blocks> {
        None
    }

    /// Quality on a batch, of a network outside of autodiff.
    fn evaluate(&self, batch: &Self::Batch) -> Evaluation;
}

impl Model {
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Swiglu(config) => config.parameters(),
            Self::Qwen2(model) | Self::Llama(model) => model.config.parameters(),
            Self::Gpt2(model) => model.config.parameters(),
        }
    }

    /// The operators that it is made of.
    pub fn outline(&self, setting: &Setting) -> Outline {
        match self {
            Self::Swiglu(config) => config.outline(setting),
            Self::Qwen2(model) | Self::Llama(model) => language::llama_outline(&model.config, setting),
            Self::Gpt2(model) => language::gpt2_outline(&model.config, setting),
        }
    }

    /// Where a language model's weights come from.
    pub fn weights(&self) -> Option<&WeightsFrom> {
        match self {
            Self::Swiglu(_) => None,
            Self::Qwen2(model) | Self::Llama(model) => Some(&model.weights),
            Self::Gpt2(model) => Some(&model.weights),
        }
    }

    /// Tokens a language model knows.
    pub fn vocab_size(&self) -> Option<usize> {
        self.decoder().map(|shape| shape.vocab_size)
    }

    /// The folder that its weights are loaded from.
    pub fn weights_folder(&self) -> Option<&Path> {
        let weights = match self {
            Self::Swiglu(_) => return None,
            Self::Qwen2(model) | Self::Llama(model) => &model.weights,
            Self::Gpt2(model) => &model.weights,
        };
        match weights {
            WeightsFrom::Random => None,
            WeightsFrom::Folder(folder) => Some(folder),
        }
    }

    /// The sizes of a language model.
    pub fn decoder(&self) -> Option<Shape> {
        match self {
            Self::Swiglu(_) => None,
            Self::Qwen2(model) | Self::Llama(model) => Some(language::llama_shape(&model.config)),
            Self::Gpt2(model) => Some(language::gpt2_shape(&model.config)),
        }
    }

    pub(crate) fn check(&self, cell: &Cell) -> Result<(), Rule> {
        match self {
            Self::Swiglu(config) => config.check(cell),
            Self::Qwen2(model) | Self::Llama(model) => {
                language::check(cell, model.config.max_position_embeddings)
            }
            Self::Gpt2(model) => language::check(cell, model.config.max_position_embeddings),
        }
    }
}
