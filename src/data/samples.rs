//! [`Samples`]: the records of a data set or the problems of a task one by one, each cut to a largest length, or all of them
//! joined as blocks of that length.

mod content;
mod encode;
mod encoder;
mod store;
mod texts;
pub(super) mod token;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use content::{Content, Extent};

use super::DataError;
pub use encode::{Source, encode_after, encode_all, size};
pub use encoder::{EncodeChat, Encoded, Encoder};
use store::Place;
pub use store::Store;
pub use token::Token;

/// `data.samples`: what a sample of a corpus is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleUnit {
    /// A line of text that is no heading, as WikiText has its paragraphs.
    #[default]
    Paragraphs,
    Documents,
}

/// `data.tokenize`: when text becomes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokenize {
    /// Before training.
    #[default]
    Once,
    /// Whenever a batch is collated.
    EveryStep,
}

/// Text that follows a prompt and is learned, or the number of the prompt's class; the prompt is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompted {
    pub prompt: String,
    pub completion: String,
}

/// The samples of a split.
pub struct Samples {
    content: Content,
    /// Those with something to learn, where others have nothing.
    kept: Option<Vec<u32>>,
    /// Fills up a batch.
    padding: u32,
    max_length: usize,
}

/// The tokens of a sample, at most `max_length`, and how many more it had.
pub struct Sample<'a> {
    pub tokens: Cow<'a, [Token]>,
    /// What the last token predicts where no token follows: a class, or the end of an answer.
    pub last_label: Option<u32>,
    pub cut: usize,
}

/// The records of a split that are no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Records that could not be read or encoded.
    pub broken: u64,
    /// Records that another split has.
    pub duplicates: u64,
    /// Records of whose first `max_length` tokens none is learned.
    pub nothing_to_learn: u64,
}

impl Samples {
    /// Each record is a sample, cut to `max_length` tokens. Those of which nothing is left to learn are left out.
    ///
    /// # Errors
    /// A record that cannot be read or encoded, and records of which none is left.
    pub fn records(
        records: &mut Source,
        encoder: Encoder,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Self, DataError> {
        Self::made(records, encoder, max_length, tokenize)?.learnable()
    }

    fn made(
        records: &mut Source,
        encoder: Encoder,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Self, DataError> {
        let padding = encoder.padding();
        let content = match tokenize {
            Tokenize::Once => Content::Stored(Arc::new(encode_all(records, &encoder, false)?)),
            Tokenize::EveryStep => Content::late(records, encoder, false)?,
        };
        Ok(Self { content, kept: None, padding, max_length })
    }

    /// The samples of records that become tokens whenever they are asked for. `skip`: those that cannot are left out and
    /// counted.
    ///
    /// # Errors
    /// As [`records`](Self::records).
    pub fn late(
        records: &mut Source,
        encoder: Encoder,
        max_length: usize,
        skip: bool,
    ) -> Result<Self, DataError> {
        let (padding, content) = (encoder.padding(), Content::late(records, encoder, skip)?);
        Self { content, kept: None, padding, max_length }.learnable()
    }

    /// The samples of tokens that were made before, as [`records`](Self::records).
    ///
    /// # Errors
    /// When there is none with something to learn.
    pub fn stored(store: Arc<Store>, padding: u32, max_length: usize) -> Result<Self, DataError> {
        Self { content: Content::Stored(store), kept: None, padding, max_length }.learnable()
    }

    /// Without the samples of which nothing is left to learn.
    fn learnable(mut self) -> Result<Self, DataError> {
        let all = self.count();
        let without: Vec<usize> = self.without().collect();
        if without.len() == all {
            return Err(DataError::new(match all {
                0 => "the split has no samples: with samples = \"paragraphs\" a corpus needs lines of text"
                    .into(),
                _ => format!(
                    "no sample of the split has something to learn in its first {} tokens (train.seq_len); make \
                     train.seq_len larger, or look which tokens are learned",
                    self.max_length
                ),
            }));
        }
        if !without.is_empty() {
            let mut without = without.into_iter().peekable();
            self.kept =
                Some((0..all).filter(|i| without.next_if_eq(i).is_none()).map(|i| i as u32).collect());
        }
        Ok(self)
    }

    /// Blocks of `length` tokens, one after the other. What is left over after the last whole block is
    /// dropped.
    ///
    /// # Errors
    /// When there is not one whole block.
    pub fn blocks(store: Arc<Store>, length: usize) -> Result<Self, DataError> {
        let tokens = store.tokens().len();
        if tokens < length {
            return Err(DataError::new(format!(
                "the corpus has {tokens} tokens, less than one sequence of {length}; make train.seq_len smaller \
                 or the corpus larger"
            )));
        }
        // No block is filled up.
        Ok(Self { content: Content::Blocks(store), kept: None, padding: 0, max_length: length })
    }

    /// Number of samples.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one sample")]
    pub fn len(&self) -> usize {
        self.kept.as_ref().map_or_else(|| self.count(), Vec::len)
    }

    /// With those that have nothing to learn.
    fn count(&self) -> usize {
        match &self.content {
            Content::Blocks(store) => store.tokens().len() / self.max_length,
            Content::Stored(store) => store.len(),
            Content::Late { records, .. } => records.len(),
        }
    }

    /// Of a sample, those with nothing to learn counted.
    fn extent(&self, index: usize) -> Extent {
        match &self.content {
            Content::Blocks(_) => Extent { length: self.max_length, least: 0 },
            Content::Stored(store) => {
                let (start, Place { end, given, last_label }) = store.place(index);
                Extent::new(end - start, given, last_label)
            }
            Content::Late { extents, .. } => extents[index],
        }
    }

    /// The samples with nothing to learn.
    fn without(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(|i| {
            let Extent { length, least } = self.extent(*i);
            least > length.min(self.max_length)
        })
    }

    /// With the numbers of records that were left out where they were read.
    #[must_use]
    pub fn without_records(mut self, broken: u64, duplicates: u64) -> Self {
        match &mut self.content {
            Content::Late { left_out, .. } => *left_out = (left_out.0 + broken, duplicates),
            Content::Blocks(store) | Content::Stored(store) => {
                if let Some(store) = Arc::get_mut(store) {
                    (store.broken, store.duplicates) = (store.broken + broken, duplicates);
                }
            }
        }
        self
    }

    pub fn left_out(&self) -> LeftOut {
        let (broken, duplicates) = match &self.content {
            Content::Blocks(store) | Content::Stored(store) => (store.broken, store.duplicates),
            Content::Late { left_out, .. } => *left_out,
        };
        LeftOut { broken, duplicates, nothing_to_learn: (self.count() - self.len()) as u64 }
    }

    /// The token that fills up a batch: nothing is predicted at it, and no other token sees it.
    pub fn padding(&self) -> u32 {
        self.padding
    }

    /// The length of every sample in tokens, cut.
    pub fn lengths(&self) -> Vec<u32> {
        (0..self.len()).map(|i| self.length(i).min(self.max_length) as u32).collect()
    }

    /// The length of a sample in tokens, uncut.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn length(&self, index: usize) -> usize {
        self.extent(self.place(index)).length
    }

    /// Among all, those with nothing to learn counted.
    fn place(&self, index: usize) -> usize {
        self.kept.as_ref().map_or(index, |kept| kept[index] as usize)
    }

    /// # Errors
    /// When the vocabulary cannot express a text that is tokenised now.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn get(&self, index: usize) -> Result<Sample<'_>, DataError> {
        let index = self.place(index);
        let (tokens, last_label): (Cow<[Token]>, Option<u32>) = match &self.content {
            Content::Blocks(store) => {
                (store.tokens()[index * self.max_length..][..self.max_length].into(), None)
            }
            Content::Stored(store) => {
                let (start, place) = store.place(index);
                (store.tokens()[start..place.end].into(), place.last_label)
            }
            Content::Late { records, encoder, .. } => {
                let Encoded { tokens, last_label } = encoder.encode(&records[index])?;
                (tokens.into(), last_label)
            }
        };
        let cut = tokens.len().saturating_sub(self.max_length);
        let left = tokens.len() - cut;
        let tokens = match tokens {
            Cow::Borrowed(tokens) => tokens[..left].into(),
            Cow::Owned(mut tokens) => {
                tokens.truncate(left);
                tokens.into()
            }
        };
        // The last token of what is left is not that of the whole.
        Ok(Sample { tokens, last_label: last_label.filter(|_| cut == 0), cut })
    }
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod tests;
