//! [`SamplerConfig`]: the keys of `[data]` that say how samples become batches.

use serde::{Deserialize, Serialize};

use super::balanced::Balanced;
use super::blocks::Blocks;
use super::packed::Packed;
use super::shuffled::{Padded, Standard};
use super::{Method, Rows};
use crate::data::samples::{SampleUnit, Tokenize};
use crate::keys::key::DefaultValue::{Depends, Whole, Word};
use crate::keys::section::{kinds, section};
use crate::keys::values::{COUNT, Values};
use crate::keys::{Key, Rule, Section};

/// Most loader threads, and most batches that one of them has ready: a channel has room for all from the start.
const MOST: i64 = 256;

section! {
    /// How samples of unequal length become batches.
    #[derive(Copy, Eq)]
    pub struct SamplerConfig: Section::but("data", "sampler", &["blocks"]) => {
        /// What a sample of a text file is; a paragraph is a line. A record of JSON lines is one sample always.
        pub samples: SampleUnit =
            Key::size(Values::Words(&["paragraphs", "documents"])).default(Word("paragraphs")),
        /// Whether the largest batch of an epoch comes first, so that a lack of memory shows early.
        pub longest_first: bool = Key::flag(false),
        /// Whether batches with fewer samples than `train.batch_size` are left out; packed ones, if they are not full.
        pub drop_last: bool = Key::flag(false),
        /// Rows of a batch are filled up to a multiple of so many tokens, but not beyond `train.seq_len`.
        pub pad_to_multiple_of: usize = Key::method(COUNT).default(Whole(1)),
        /// Whether text becomes tokens before training, or whenever a batch is made.
        pub tokenize: Tokenize = Key::method(Values::Words(&["once", "every_step"]))
            .default(Word("once")),
        /// Threads that make batches ahead of the training loop; 0: the loop makes them itself.
        pub num_workers: usize = Key::method(Values::Whole { least: 0, most: MOST }).default(Whole(1)),
        /// Batches that each thread has ready; with 2, a batch that takes twice as long to make causes no wait.
        pub prefetch_factor: usize = Key::method(Values::Whole { least: 1, most: MOST }).default(Whole(2)),
        /// Whether batches go to a GPU through page-locked memory, in one copy each.
        pub pinned: bool = Key::flag(true),
    } and {
        pub sampler: Sampler,
    }
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

impl SamplerConfig {
    /// The key that names the sampler.
    pub const KEY: Section = Section::new("data").with(
        "How text becomes batches: equal blocks, or samples of their own length.",
        &[Key::method(Values::Kinds)
            .named("sampler", "How samples become batches.")
            .default(Depends("\"blocks\" where there is text"))],
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

    /// Whether batches have unequal numbers of tokens, padding included.
    pub fn varies(&self) -> bool {
        self.sampler.rows() == Rows::Longest
    }

    /// Tokens of a row whose longest sample has so many, none of them more than `max_length`.
    pub fn width(&self, longest: usize, batch_size: usize, max_length: usize) -> usize {
        match self.sampler.rows() {
            Rows::Full => max_length,
            Rows::Longest => longest.next_multiple_of(self.pad_to_multiple_of).min(max_length),
            Rows::Packed => batch_size * max_length,
        }
    }

    /// Refuses keys that have no effect with others, or do not go with them.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            self.longest_first && self.sampler.rows() != Rows::Longest,
            &["data.longest_first"],
            "`longest_first` has no effect: the batches of this sampler are equally large",
            "remove it, or use sampler = \"standard\" or \"balanced\"",
        )?;
        Rule::refuse_if(
            self.tokenize == Tokenize::EveryStep && (self.sampler.by_length() || self.longest_first),
            &["data.tokenize"],
            "tokenize = \"every_step\" does not go with a sampler that needs the samples' lengths before it \
             draws",
            "use tokenize = \"once\"",
        )
    }
}
