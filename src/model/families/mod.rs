//! Families of language models, a file each: dimensions, what surrounds the blocks, and a block.

mod gpt2;
mod gptj;
mod llama;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use gpt2::Gpt2;
pub use gptj::GptJ;
pub use llama::{Llama, Qwen2};

use super::config::ConfigFile;
use super::language::{Block, Outline};
use crate::keys::Section;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::params::table::Tuning;

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

    /// Whether transformers makes its embedding with a `padding_idx`: the row of `pad_token_id` gets no gradient where it is
    /// read.
    const PADS: bool = false;

    type Config: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The dimensions as they are written, each absent or present.
    type Keys: Serialize + DeserializeOwned;

    type Block: Block<Config = Self::Config>;

    /// Fills in the dimensions that depend on others, as transformers does. All others have a value: the one that is
    /// written, or the default of their key.
    ///
    /// # Errors
    /// When dimensions do not go together.
    fn complete(keys: &mut Self::Keys) -> Result<(), String>;

    /// Refuses what a `config.json` may ask for but the family does not compute, and adds to `written` the dimensions
    /// that stand there in another form.
    ///
    /// # Errors
    /// The key, and what is supported.
    fn read(file: &ConfigFile, written: &mut Map<String, Value>) -> Result<(), String>;

    /// The inverse of [`read`](Self::read): adds what else a `config.json` must have besides the dimensions.
    fn write(config: &Self::Config, file: &mut Map<String, Value>);

    fn outline(config: &Self::Config) -> Outline;

    /// The operators of a block with the adapters of `tuning`, in the order of forward.
    fn block_operators(config: &Self::Config, setting: &Setting, tuning: &Tuning) -> Vec<Cost>;
}
