//! Families of language models, a file each: their dimensions, how `config.json` has them, and the architecture that follows.

mod gemma;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_neox;
mod gptj;
mod granite;
mod llama;
mod mistral;
mod olmo2;
mod opt;
mod phi;
mod phi3;
mod plain;
mod qwen2;
mod qwen3;
mod smollm3;
mod starcoder2;
mod t5;

use serde_json::{Map, Value};

use super::architecture::Architecture;
use super::config::{ConfigFile, Dimensions, Whole};
use crate::keys::Section;
use crate::keys::key::DefaultValue;

/// All of them.
pub const FAMILIES: &[&Family] = &[
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &llama::LLAMA,
    &mistral::MISTRAL,
    &smollm3::SMOLLM3,
    &olmo2::OLMO2,
    &granite::GRANITE,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &phi::PHI,
    &phi3::PHI3,
    &starcoder2::STARCODER2,
    &gpt2::GPT2,
    &gptj::GPTJ,
    &gpt_neox::GPT_NEOX,
    &opt::OPT,
    &t5::T5,
];

/// A kind of language model.
#[derive(Debug)]
pub struct Family {
    /// In `model.kind` and in `model_type` of `config.json`.
    pub kind: &'static str,
    /// transformers' class, in `architectures` of `config.json`.
    pub class: &'static str,
    /// The model that reads more than text and whose text part is of this family.
    pub whole: Option<Whole>,
    /// Names of published sizes, with their `config.json`.
    pub presets: &'static [(&'static str, &'static str)],
    /// The keys of its dimensions.
    pub section: Section,
    /// The dimensions that have another name in `config.json`, with that; with an empty one where the file has no such key.
    pub in_file: &'static [(&'static str, &'static str)],
    /// The field of `config.json` that names the MLP's activation, and transformers' default.
    pub activation: (&'static str, &'static str),
    /// The activations that it has.
    pub activations: &'static [&'static str],
    /// Other fields of `config.json` that have one value alone, which is transformers' default, or are absent.
    pub fixed: &'static [(&'static str, DefaultValue)],
    /// The field of `config.json` that must be true for windows of attention to count, where there is one.
    pub window_switch: Option<&'static str>,
    /// Its operators, by their names in `[ops]`.
    pub operators: &'static [&'static str],
    /// Whether transformers makes its embedding with a `padding_idx`: the row of `pad_token_id` gets no gradient where it is
    /// read.
    pub pads: bool,
    /// transformers' `pad_token_id` where a file has none.
    pub padding: Option<usize>,
    /// Refuses what else a `config.json` may ask for but is not computed, and adds to the dimensions that are written there
    /// those that stand in another form.
    pub read: fn(&ConfigFile, &mut Map<String, Value>) -> Result<(), String>,
    /// Fills in the dimensions that depend on others, as transformers does. All others have a value: the one that is
    /// written, or the default of their key. It fails when dimensions do not go together.
    pub complete: fn(&mut Dimensions) -> Result<(), String>,
    /// It fails when dimensions do not go together.
    pub architecture: fn(&Dimensions) -> Result<Architecture, String>,
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Family {
    /// The family of this kind.
    pub fn of_kind(kind: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.kind == kind).copied()
    }

    /// The family that has this preset.
    pub fn of_preset(preset: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.presets.iter().any(|(name, _)| *name == preset)).copied()
    }

    /// The name of a dimension in `config.json`; empty where it has none.
    pub fn name_in_file(&self, dimension: &'static str) -> &'static str {
        if dimension == "activation" {
            return self.activation.0;
        }
        self.in_file.iter().find(|(name, _)| *name == dimension).map_or(dimension, |(_, in_file)| in_file)
    }
}
