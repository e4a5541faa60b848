//! Virtual tokens before each sample. Prompt tuning (Lester et al. 2021, "The Power of Scale for Parameter-Efficient
//! Prompt Tuning") trains their embeddings; prefix tuning (Li and Liang 2021, "Prefix-Tuning: Optimizing Continuous
//! Prompts for Generation", without the network that makes the prefix) their keys and values in every layer.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Tunes;
use crate::keys::key::DefaultValue::{Nothing, Whole};
use crate::keys::section::section;
use crate::keys::values::{COUNT, Values};
use crate::keys::{Key, Section};

section! {
    /// Virtual tokens before each sample, which alone are trained: `prompt` trains their embeddings, `prefix` their keys and
    /// values in every layer.
    pub struct VirtualTokenKeys: Section::of("tuning", "method", &["prompt", "prefix"]) => {
        /// Virtual tokens before each sample, beyond `train.seq_len`.
        pub num_virtual_tokens: usize =
            Key::method(COUNT).default(Whole(20)),
        /// PEFT folder whose virtual tokens training begins with. Without it they are drawn from the seed.
        pub adapter: Option<String> =
            Key::method(Values::Text).default(Nothing).called("first adapter"),
    }
}

/// Virtual tokens before each sample: what is trained of them, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualTokens {
    /// Their embeddings.
    Embeddings(usize),
    /// Their keys and values in every layer; what else is computed of them no other token sees.
    KeysAndValues(usize),
}

impl VirtualTokens {
    pub fn count(self) -> usize {
        let (Self::Embeddings(count) | Self::KeysAndValues(count)) = self;
        count
    }
}

/// Prompt tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt(pub VirtualTokenKeys);

/// Prefix tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefix(pub VirtualTokenKeys);

impl Prompt {
    pub const SECTION: Section = VirtualTokenKeys::SECTION;
}

impl Prefix {
    pub const SECTION: Section = VirtualTokenKeys::SECTION;
}

impl Tunes for Prompt {
    fn virtual_tokens(&self) -> Option<VirtualTokens> {
        Some(VirtualTokens::Embeddings(self.0.num_virtual_tokens))
    }

    fn folder(&self) -> Option<&Path> {
        self.0.adapter.as_deref().map(Path::new)
    }
}

impl Tunes for Prefix {
    fn virtual_tokens(&self) -> Option<VirtualTokens> {
        Some(VirtualTokens::KeysAndValues(self.0.num_virtual_tokens))
    }

    fn folder(&self) -> Option<&Path> {
        self.0.adapter.as_deref().map(Path::new)
    }
}
