//! [`Files`]: the files of a corpus, and which of their records are of a split.

use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use super::Split;
use crate::common::text::few;
use crate::data::DataError;
use crate::data::reader::{self, Keep, Kind, Reading, Records, Side, describes, ending};
use crate::data::samples::SampleUnit;
use crate::data::split_names::names_split;

/// Files that an error names.
const MOST_NAMED: usize = 8;

/// The files of a corpus.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
    /// In the order of their paths.
    pub(super) files: Vec<(Split, PathBuf)>,
    reading: Reading,
    /// With a held-out share: which split's files it divides, which split it makes, and the seed.
    divided: Option<(Split, Split, u64)>,
}

impl Files {
    /// # Errors
    /// A path without files that are read, and data of a split in a file that is not.
    pub fn open(root: &Path) -> Result<Self, DataError> {
        let new = |files| Self { root: root.into(), files, reading: Reading::default(), divided: None };
        let named = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_path_buf();
        if root.is_file() {
            let name = root.file_name().map(Path::new).unwrap_or(root);
            return match Kind::from_path(root) {
                Some(_) => Ok(new(vec![(Split::from_path(name), root.into())])),
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
                _ if !path.is_file() || describes(&path) => {}
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
                "{} holds no data: a corpus has files that end in {}",
                root.display(),
                Kind::endings()
            )));
        }
        Ok(new(files))
    }

    /// With the keys of `[data]` by which they are read, for training and for evaluation.
    #[must_use]
    pub fn read_by(self, reading: Reading, seed: u64, [train, eval]: [Split; 2]) -> Self {
        let divided = reading.held_out.map(|_| (train, eval, seed));
        Self { reading, divided, ..self }
    }

    /// The split whose files have the records of this one.
    fn source(&self, split: Split) -> Split {
        self.divided.filter(|(_, made, _)| *made == split).map_or(split, |(divided, ..)| divided)
    }

    fn own(&self, split: Split) -> impl Iterator<Item = &Path> {
        self.files.iter().filter(move |(own, _)| *own == split).map(|(_, path)| path.as_path())
    }

    /// Files with records that may also be in this split, and stay there.
    fn behind(&self, split: Split) -> Vec<PathBuf> {
        let has_records = |path: &Path| Kind::from_path(path).is_some_and(|kind| !kind.is_plain());
        if !self.own(split).any(has_records) {
            return Vec::new();
        }
        let behind = self.files.iter().filter(|(own, path)| *own > split && has_records(path));
        behind.map(|(_, path)| path.clone()).collect()
    }

    /// Those that are read for these splits.
    pub fn of_splits(&self, splits: &[Split]) -> Vec<PathBuf> {
        let sources: Vec<Split> = splits.iter().map(|split| self.source(*split)).collect();
        let behind: Vec<PathBuf> = sources.iter().flat_map(|split| self.behind(*split)).collect();
        let is_read = |(own, path): &&(Split, PathBuf)| sources.contains(own) || behind.contains(path);
        self.files.iter().filter(is_read).map(|(_, path)| path.clone()).collect()
    }

    /// The records of a split.
    ///
    /// # Errors
    /// As [`Files::require`].
    pub fn records(&self, split: Split, unit: SampleUnit) -> Result<Records, DataError> {
        self.require(split)?;
        let source = self.source(split);
        // What cannot be read there is reported where that split is read.
        let lenient = Reading { skip_broken: true, ..self.reading.clone() };
        let behind = self
            .behind(source)
            .into_iter()
            .flat_map(|file| reader::open(vec![file], &lenient, SampleUnit::Documents).map_while(Result::ok));
        let mut keep = Keep::without(behind);
        if let (Some((divided, _, seed)), Some(share)) = (self.divided, self.reading.held_out)
            && divided == source
        {
            keep = keep.side(share, seed, if split == source { Side::Train } else { Side::HeldOut });
        }
        let files = self.own(source).map(Path::to_path_buf).collect();
        Ok(reader::open(files, &self.reading, unit).kept_by(keep))
    }

    /// # Errors
    /// A split without files that have text, or both with files and with a share of another split's.
    pub fn require(&self, split: Split) -> Result<(), DataError> {
        let source = self.source(split);
        if source != split && self.own(split).next().is_some() {
            let own = few(self.own(split).map(Path::display), MOST_NAMED);
            return Err(DataError::new(format!(
                "data.held_out holds out a share of \"{source}\" as \"{split}\", and {own} is \"{split}\" by its name: \
                 remove the key, or name another split"
            )));
        }
        if self.own(source).any(has_bytes) { Ok(()) } else { Err(self.no_text(split)) }
    }

    pub fn no_text(&self, split: Split) -> DataError {
        let own = few(self.own(self.source(split)).map(Path::display), MOST_NAMED);
        if !own.is_empty() {
            let why = match self.divided {
                Some(_) => "; a larger or smaller data.held_out or another seed divides them in another way",
                None => "",
            };
            return DataError::new(format!(
                "there is no text for \"{split}\" in {own}: write some into it{why}"
            ));
        }
        DataError::new(format!(
            "the corpus {} has no text for \"{split}\"; a file belongs to it when its name says so, as \
             wiki.{split}.tokens does, and data.held_out holds out a share of the others. Its files: {}",
            self.root.display(),
            few(self.files.iter().map(|(_, path)| path.display()), MOST_NAMED)
        ))
    }
}

/// Endings of files with data that a corpus cannot have, and how it can.
const CONVERTED: [(&[&str], &str); 2] = [
    (&["arrow", "feather", "xlsx", "orc", "pkl", "npy"], "write its records into a .parquet or .jsonl file"),
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
        "{} is not read: a corpus has files that end in {}; {}",
        path.display(),
        Kind::endings(),
        advice.map_or("if it is plain text, name it .txt", |(_, advice)| advice)
    ))
}

/// Whether a file is not empty; also of one that cannot be asked, which reading names.
fn has_bytes(path: &Path) -> bool {
    path.metadata().map_or(true, |metadata| metadata.len() > 0)
}
