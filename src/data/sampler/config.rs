//! [`SamplerConfig`]: the keys of `[data]` that say how samples become batches.

use serde::{Deserialize, Serialize};

use super::balanced::Balanced;
use super::blocks::Blocks;
use super::packed::Packed;
use super::shuffled::{Padded, Standard};
use super::{Method, Rows};
use crate::data::samples::{SampleUnit, Tokenize};
use crate::words::key::{COUNT, COUNT_OR_ZERO, DefaultValue, Key, Section, Values, kinds};
use crate::words::{Rule, values};

/// `data.sampler` and the keys that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplerConfig {
    pub sampler: Sampler,
    pub samples: SampleUnit,
    /// The largest batch of an epoch comes first, so that a lack of memory shows early.
    pub longest_first: bool,
    /// Batches with fewer samples than `train.batch_size` are left out.
    pub drop_last: bool,
    /// Rows of a batch are filled up to a multiple of this.
    #[serde(deserialize_with = "values::count")]
    pub pad_to_multiple_of: usize,
    pub tokenize: Tokenize,
    /// Threads that make batches ready; 0: the training loop makes them.
    #[serde(deserialize_with = "values::count_or_zero")]
    pub num_workers: usize,
    /// Batches that each thread has ready.
    #[serde(deserialize_with = "values::count")]
    pub prefetch_factor: usize,
    /// Whether batches go to a GPU through page-locked memory, in one copy each.
    pub pinned: bool,
}

kinds! {
    /// How samples of unequal length make up a batch of `train.batch_size` of them, each cut to
    /// `train.seq_len` tokens first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Sampler: Method {
        Blocks(Blocks),
        Padded(Padded),
        Standard(Standard),
        Balanced(Balanced),
        Packed(Packed),
    }
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self::of(Sampler::Padded(Padded {}))
    }
}

impl SamplerConfig {
    /// The keys that go with every sampler.
    pub const SECTION: Section = Section::but(
        "data",
        "sampler",
        &["blocks"],
        "How samples of unequal length become batches.",
        &[
            Key::size(
                "samples",
                Values::Words(&["paragraphs", "documents"]),
                DefaultValue::Word("paragraphs"),
                "What a sample of the corpus is.",
            ),
            Key::method(
                "longest_first",
                Values::Bool,
                DefaultValue::Bool(false),
                "Whether the largest batch of an epoch comes first, so that a lack of memory shows early.",
            ),
            Key::method(
                "drop_last",
                Values::Bool,
                DefaultValue::Bool(false),
                "Whether batches with fewer samples than `train.batch_size` are left out.",
            ),
            Key::method(
                "pad_to_multiple_of",
                COUNT,
                DefaultValue::Whole(1),
                "Rows of a batch are filled up to a multiple of so many tokens.",
            ),
            Key::method(
                "tokenize",
                Values::Words(&["once", "every_step"]),
                DefaultValue::Word("once"),
                "Whether text becomes tokens before training, or whenever a batch is made.",
            )
            .reads(&[("", "tokenised {}")]),
            Key::method(
                "num_workers",
                COUNT_OR_ZERO,
                DefaultValue::Whole(1),
                "Threads that make batches ready; 0: the training loop makes them.",
            )
            .reads(&[
                ("0", "loaded in the loop"),
                ("1", "one loader thread"),
                ("", "{} loader threads"),
            ]),
            Key::method(
                "prefetch_factor",
                COUNT,
                DefaultValue::Whole(2),
                "Batches that each thread has ready: 2 bridge one that takes twice as long.",
            ),
            Key::method(
                "pinned",
                Values::Bool,
                DefaultValue::Bool(true),
                "Whether batches go to a GPU through page-locked memory, in one copy each.",
            ),
        ],
    );

    /// The key that names the sampler.
    pub const KEY: Section = Section::new(
        "data",
        "Whether text is cut into equal blocks, or stays samples.",
        &[Key::method(
            "sampler",
            Values::Kinds,
            DefaultValue::Depends("\"blocks\" where there is text"),
            "How samples become batches.",
        )],
    );

    /// With the default of every option. A batch of blocks is a copy, which needs no thread and no buffer of
    /// its own.
    pub fn of(sampler: Sampler) -> Self {
        Self {
            sampler,
            samples: SampleUnit::default(),
            longest_first: false,
            drop_last: false,
            pad_to_multiple_of: 1,
            tokenize: Tokenize::Once,
            num_workers: usize::from(sampler.keeps_samples()),
            prefetch_factor: 2,
            pinned: sampler.keeps_samples(),
        }
    }

    /// Tokens of a row whose longest sample has so many, none of them more than `max_length`.
    pub fn width(&self, longest: usize, batch_size: usize, max_length: usize) -> usize {
        match self.sampler.rows() {
            Rows::Full => max_length,
            Rows::Longest => longest.next_multiple_of(self.pad_to_multiple_of).min(max_length),
            Rows::Packed => batch_size * max_length,
        }
    }

    /// What cannot be among these keys.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        if self.longest_first && self.sampler.rows() != Rows::Longest {
            return Err(Rule::new(
                &["data.longest_first"],
                "`longest_first` has no effect: the batches of this sampler are equally large",
                "remove it, or use sampler = \"standard\" or \"balanced\"",
            ));
        }
        if self.tokenize == Tokenize::EveryStep && (self.sampler.by_length() || self.longest_first) {
            return Err(Rule::new(
                &["data.tokenize"],
                "tokenize = \"every_step\" does not go with a sampler that needs the samples' lengths before it \
                 draws",
                "use tokenize = \"once\"",
            ));
        }
        Ok(())
    }
}
