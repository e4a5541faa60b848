//! [`Corpus`]: documents of text, in splits, from files, generated, or the problems of a task.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::{DirEntry, WalkDir};

use super::documents::{Kind, ending};
use super::split_names::names_split;
use super::task::Problems;
use super::{DataError, Prompted, generated};
use crate::common::text::few;

/// Files that an error names.
const MOST_NAMED: usize = 8;

/// The parts of a corpus.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
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

/// Where documents come from. They are read when they are asked for.
#[derive(Clone, Debug)]
pub enum Corpus {
    Files {
        root: PathBuf,
        /// In the order of their paths.
        files: Vec<(Split, PathBuf)>,
    },
    /// Stories made up from the seed.
    Generated {
        seed: u64,
        /// Of the training split; the others have a tenth of it each.
        bytes: u64,
    },
    Task(Box<Problems>),
}

impl Corpus {
    /// A file, or a folder of `*.txt`, `*.tokens`, `*.raw` (WikiText) and `*.jsonl` files. Hidden files and folders are no
    /// part of a folder's text.
    ///
    /// # Errors
    /// A path without such files, and data of a split in a file that is not read.
    pub fn open(root: &Path) -> Result<Self, DataError> {
        let named = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_path_buf();
        if root.is_file() {
            let name = root.file_name().map(Path::new).unwrap_or(root);
            return match Kind::from_path(root) {
                Some(_) => {
                    Ok(Self::Files { root: root.into(), files: vec![(Split::from_path(name), root.into())] })
                }
                None => Err(not_read(root)),
            };
        }
        let (mut files, mut others) = (Vec::new(), Vec::new());
        let hidden = |entry: &DirEntry| entry.depth() > 0 && entry.file_name().as_encoded_bytes()[0] == b'.';
        for entry in
            WalkDir::new(root).follow_links(true).sort_by_file_name().into_iter().filter_entry(|e| !hidden(e))
        {
            let entry = entry
                .map_err(|e| DataError::new(format!("cannot read the corpus {}: {e}", root.display())))?;
            let path = entry.into_path();
            match Kind::from_path(&path) {
                _ if !path.is_file() => {}
                Some(_) => files.push((Split::from_path(&named(&path)), path)),
                None if is_data(&path) => others.push(path),
                None => {}
            }
        }
        // What is named as a split is meant to be read.
        if let Some(other) = others.iter().find(|path| files.is_empty() || names_split(&named(path))) {
            return Err(not_read(other));
        }
        if files.is_empty() {
            return Err(DataError::new(format!(
                "{} holds no text: a corpus has files that end in .{}",
                root.display(),
                Kind::ENDINGS.join(", .")
            )));
        }
        Ok(Self::Files { root: root.to_path_buf(), files })
    }

    /// The files that hold these splits, in the order they are read; a generated corpus has none.
    pub fn files(&self, splits: &[Split]) -> Vec<PathBuf> {
        match self {
            Self::Generated { .. } | Self::Task(_) => Vec::new(),
            Self::Files { files, .. } => {
                files.iter().filter(|(of, _)| splits.contains(of)).map(|(_, path)| path.clone()).collect()
            }
        }
    }

    /// The documents of a split, none of them empty.
    ///
    /// # Errors
    /// A split without files, and files that cannot be read, named.
    pub fn documents(&self, split: Split) -> Result<Vec<String>, DataError> {
        match self {
            Self::Generated { seed, bytes } => {
                let bytes = if split == Split::Train { *bytes } else { bytes / 10 };
                Ok(generated::stories(*seed, split, bytes))
            }
            Self::Task(problems) => {
                let whole = |Prompted { prompt, completion }: &Prompted| format!("{prompt}{completion}");
                Ok(problems.of(split).iter().map(whole).collect())
            }
            Self::Files { .. } => self.texts(split, |_, document| vec![document]),
        }
    }

    /// Whether there is something to read for a split.
    ///
    /// # Errors
    /// A split without files that have text.
    pub fn require(&self, split: Split) -> Result<(), DataError> {
        match self {
            Self::Files { root, files }
                if !files.iter().any(|(of, path)| *of == split && has_bytes(path)) =>
            {
                Err(no_text(root, files, split))
            }
            Self::Files { .. } | Self::Generated { .. } | Self::Task(_) => Ok(()),
        }
    }

    /// The paragraphs of a split, none of them empty: the lines of a text, without the headings of WikiText; the records of
    /// JSON lines.
    ///
    /// # Errors
    /// As [`Corpus::documents`].
    pub fn paragraphs(&self, split: Split) -> Result<Vec<String>, DataError> {
        match self {
            Self::Generated { seed, .. } => Ok(generated::paragraphs(&self.documents(split)?, *seed, split)),
            Self::Task(_) => self.documents(split),
            Self::Files { .. } => self.texts(split, Kind::paragraphs),
        }
    }

    /// What `part` makes of the documents of a split's files.
    fn texts(&self, split: Split, part: fn(Kind, String) -> Vec<String>) -> Result<Vec<String>, DataError> {
        let Self::Files { root, files } = self else { return Ok(Vec::new()) };
        let mut texts = Vec::new();
        for (_, path) in files.iter().filter(|(own, _)| *own == split) {
            let kind = Kind::from_path(path).expect("a corpus has files of a kind");
            texts.extend(kind.documents(path)?.into_iter().flat_map(|document| part(kind, document)));
        }
        if texts.is_empty() { Err(no_text(root, files, split)) } else { Ok(texts) }
    }
}

/// Endings of files with data that a corpus cannot have, and how it can.
const CONVERTED: [(&[&str], &str); 3] = [
    (
        &["json", "ndjson", "jl"],
        "if it has an object on each line, name it .jsonl; a list has to be written so, an object on each line",
    ),
    (
        &["csv", "tsv", "parquet", "arrow", "feather", "xlsx", "orc"],
        "write its texts into a .jsonl file, {\"text\": …} on each line, or into a .txt file",
    ),
    (&["gz", "zst", "xz", "bz2", "zip", "tar", "tgz", "7z", "lz4"], "decompress it"),
];

/// Whether a file that is not read has data.
fn is_data(path: &Path) -> bool {
    CONVERTED.iter().any(|(endings, _)| endings.contains(&ending(path).as_str()))
}

fn not_read(path: &Path) -> DataError {
    let ending = ending(path);
    let advice = CONVERTED.iter().find(|(endings, _)| endings.contains(&ending.as_str()));
    DataError::new(format!(
        "{} is not read: a corpus has files that end in .{}; {}",
        path.display(),
        Kind::ENDINGS.join(", ."),
        advice.map_or("if it is plain text, name it .txt", |(_, advice)| advice)
    ))
}

/// Whether a file is not empty; also of one that cannot be asked, which reading names.
fn has_bytes(path: &Path) -> bool {
    path.metadata().map_or(true, |metadata| metadata.len() > 0)
}

fn no_text(root: &Path, files: &[(Split, PathBuf)], split: Split) -> DataError {
    let name = split.into_str();
    let names = |all: &mut dyn Iterator<Item = &(Split, PathBuf)>| {
        few(all.map(|(_, path)| path.display()), MOST_NAMED)
    };
    let own = names(&mut files.iter().filter(|(of, _)| *of == split));
    if !own.is_empty() {
        return DataError::new(format!("there is no text for \"{name}\" in {own}: write some into it"));
    }
    DataError::new(format!(
        "the corpus {} has no text for \"{name}\"; a file belongs to it when its name says so, as \
         wiki.{name}.tokens does. Its files: {}",
        root.display(),
        names(&mut files.iter())
    ))
}

#[cfg(test)]
#[path = "corpus_tests.rs"]
mod tests;
