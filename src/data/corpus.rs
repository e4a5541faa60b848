//! [`Corpus`]: documents of text, in splits, from files, generated, or the problems of a task.

mod files;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use files::Files;

use super::reader::{Reading, Records};
use super::record::Record;
use super::samples::SampleUnit;
use super::task::Problems;
use super::{DataError, generated};

/// The parts of a corpus. A record that is in several of them stays in the last.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Split {
    Train,
    Valid,
    Test,
}

impl Split {
    /// What is held out where no split is named.
    pub const HELD_OUT: Self = Self::Valid;
}

/// Where records come from. They are read when they are asked for.
#[derive(Clone, Debug)]
pub enum Corpus {
    Files(Box<Files>),
    /// Stories made up from the seed.
    Generated {
        seed: u64,
        /// Of the training split; the others have a tenth of it each.
        bytes: u64,
    },
    Task(Box<Problems>),
}

impl Corpus {
    /// A file, or a folder with files of the [`Kind`]s that are read. Hidden files and folders are no part of a folder's
    /// data, nor are files that describe it.
    ///
    /// # Errors
    /// A path without such files, and data of a split in a file that is not read.
    pub fn open(root: &Path) -> Result<Self, DataError> {
        Files::open(root).map(|files| Self::Files(Box::new(files)))
    }

    /// The corpus with the keys of `[data]` by which its files are read, for training and for evaluation.
    #[must_use]
    pub fn read_by(self, reading: Reading, seed: u64, splits: [Split; 2]) -> Self {
        match self {
            Self::Files(files) => Self::Files(Box::new(files.read_by(reading, seed, splits))),
            other => other,
        }
    }

    /// The files that are read for these splits, in order; a generated corpus has none.
    pub fn files(&self, splits: &[Split]) -> Vec<PathBuf> {
        match self {
            Self::Generated { .. } | Self::Task(_) => Vec::new(),
            Self::Files(files) => files.of_splits(splits),
        }
    }

    /// All files, each with the split that its name speaks of.
    pub fn named(&self) -> &[(Split, PathBuf)] {
        match self {
            Self::Generated { .. } | Self::Task(_) => &[],
            Self::Files(files) => &files.files,
        }
    }

    /// The records of a split, as they are read. `unit`: whether those of text are its documents or its paragraphs: the lines
    /// of a text, without the headings of WikiText. Any other record is whole.
    ///
    /// # Errors
    /// A split without files, named. Those that cannot be read end the records.
    pub fn records(&self, split: Split, unit: SampleUnit) -> Result<Records, DataError> {
        match self {
            Self::Generated { seed, bytes } => {
                let bytes = if split == Split::Train { *bytes } else { bytes / 10 };
                let documents = generated::stories(*seed, split, bytes);
                let texts = match unit {
                    SampleUnit::Documents => documents,
                    SampleUnit::Paragraphs => generated::paragraphs(&documents, *seed, split),
                };
                Ok(Records::in_memory(texts.into_iter().map(Record::Text)))
            }
            Self::Task(problems) => Ok(Records::in_memory(problems.records(split))),
            Self::Files(files) => files.records(split, unit),
        }
    }

    /// The documents of a split as texts, none of them empty.
    ///
    /// # Errors
    /// A split without text, and files that cannot be read or have tokens in the place of text, named.
    pub fn documents(&self, split: Split) -> Result<Vec<String>, DataError> {
        self.texts(split, SampleUnit::Documents)
    }

    /// The paragraphs of a split as texts, none of them empty.
    ///
    /// # Errors
    /// As [`Corpus::documents`].
    pub fn paragraphs(&self, split: Split) -> Result<Vec<String>, DataError> {
        self.texts(split, SampleUnit::Paragraphs)
    }

    fn texts(&self, split: Split, unit: SampleUnit) -> Result<Vec<String>, DataError> {
        let texts: Vec<String> =
            self.records(split, unit)?.map(|record| record?.into_text()).collect::<Result<_, _>>()?;
        match self {
            Self::Files(files) if texts.is_empty() => Err(files.no_text(split)),
            _ => Ok(texts),
        }
    }

    /// Whether there is something to read for a split.
    ///
    /// # Errors
    /// A split without files that have text, or both with files and with a share of another split's.
    pub fn require(&self, split: Split) -> Result<(), DataError> {
        match self {
            Self::Files(files) => files.require(split),
            Self::Generated { .. } | Self::Task(_) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "corpus_tests.rs"]
mod tests;
