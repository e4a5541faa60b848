//! Families of language models, a file each: dimensions, what surrounds the blocks, and a block.

mod gpt2;
mod gptj;
mod llama;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use gpt2::{Gpt2, Gpt2Config, LearnedOrSinusoidal};
pub use gptj::{GptJ, GptJConfig};
pub use llama::{Llama, LlamaConfig, Qwen2};

use super::Operators;
use super::config::ConfigFile;
use super::language::{Block, Outline};
use crate::ops::cost::Setting;
use crate::ops::dense::WeightLayout;
use crate::params::table::Tuning;
use crate::words::Section;

/// A kind of language model.
pub trait Family: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// In `model.kind` and in `model_type` of `config.json`.
    const KIND: &'static str;

    /// Names of published sizes, with their `config.json`.
    const PRESETS: &'static [(&'static str, &'static str)];

    /// The keys of its dimensions.
    const SECTION: Section;

    /// Its operators, by their names in `[ops]`.
    const OPERATORS: &'static [&'static str];

    /// Their names in `config.json`, in the same order; empty where it has none.
    const IN_FILE: &'static [&'static str];

    /// How the weights of its linear layers lie.
    const LAYOUT: WeightLayout;

    type Config: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The same as written, each dimension absent or present.
    type Keys: Serialize + DeserializeOwned;

    type Block: Block<Config = Self::Config>;

    /// Fills in what is not written, as transformers does; what is required is there.
    ///
    /// # Errors
    /// When dimensions do not go with each other.
    fn complete(keys: &mut Self::Keys) -> Result<(), String>;

    /// Refuses what a `config.json` may ask for and the family does not compute, and reads what is not written
    /// there as the dimensions name it.
    ///
    /// # Errors
    /// The key, and what is supported.
    fn read(file: &ConfigFile, written: &mut Map<String, Value>) -> Result<(), String>;

    /// Adds to the dimensions what else a `config.json` must have: the other way round than [`read`](Self::read).
    fn write(config: &Self::Config, file: &mut Map<String, Value>);

    fn outline(config: &Self::Config) -> Outline;

    /// The operators with the adapters of `tuning`, in the order of forward.
    fn operators(config: &Self::Config, setting: &Setting, tuning: &Tuning) -> Operators;
}
