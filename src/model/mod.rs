//! Networks: what `[model] kind` may name, and what a network gives the runner.

pub mod config;
pub mod generate;
pub mod language;
pub mod swiglu;

use std::path::Path;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::measure::{Estimate, Evaluation};
use crate::params::WeightsFrom;
use crate::recipe::Cell;
use crate::residence::Blocks;
use crate::words::key::{DefaultValue, Key, Section, Values};
use config::{Gpt2Config, LanguageModel, LlamaConfig};
use language::memory::Shape;
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

/// Floating-point operations of one step, a multiply-add counted as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    pub forward: f64,
    /// Recomputation not counted.
    pub backward: f64,
    /// What backward repeats of forward.
    pub recompute: f64,
}

impl Model {
    pub const SECTIONS: &[Section] = &[
        Section::new(
            "model",
            "The network.",
            &[Key::method("kind", Values::Kinds, DefaultValue::Required, "Which network.")
                .follows(&["model.preset"])],
        ),
        config::SECTION,
        SwigluConfig::SECTION,
        LlamaConfig::SECTION,
        Gpt2Config::SECTION,
    ];

    pub fn parameters(&self) -> u64 {
        match self {
            Self::Swiglu(config) => config.parameters(),
            Self::Qwen2(model) | Self::Llama(model) => model.config.parameters(),
            Self::Gpt2(model) => model.config.parameters(),
        }
    }

    pub fn flops(&self, cell: &Cell) -> Flops {
        match (self, self.decoder()) {
            (Self::Swiglu(config), _) => config.flops(cell),
            (_, Some(shape)) => shape.flops(cell),
            (_, None) => unreachable!("every other model is a decoder"),
        }
    }

    /// Bytes the cell needs at its highest moment, from its settings alone.
    pub fn estimate(&self, cell: &Cell) -> Estimate {
        match (self, self.decoder()) {
            (Self::Swiglu(config), _) => config.estimate(cell),
            (_, Some(shape)) => shape.estimate(cell),
            (_, None) => unreachable!("every other model is a decoder"),
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

    /// The operators that it has, by their names in `[ops]`.
    pub fn operators(&self) -> &'static [&'static str] {
        match self {
            Self::Swiglu(_) => &["swiglu"],
            Self::Qwen2(_) | Self::Llama(_) => &["swiglu", "attention", "loss", "norm", "rope"],
            Self::Gpt2(_) => &["gelu", "attention", "loss", "norm"],
        }
    }
}
