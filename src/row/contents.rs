//! [`Contents`]: checksums of the files that cells read, which identify a row together with its settings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::common::checksums::{self, Checksums};
use crate::common::text::hex;
use crate::data::{Corpus, Data, Split, TextSource, Tokenizer, TokenizerSource};
use crate::params::{WeightsFrom, hub, peft, weights};
use crate::recipe::Cell;
use crate::row::Inputs;

/// Reads each file once, however many cells read it: a folder of weights has gigabytes.
pub struct Contents<'a> {
    checksums: Checksums<'a>,
    known: HashMap<Reads, Option<String>>,
}

/// Files that a cell reads for one of its settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reads {
    Weights(PathBuf),
    Corpus(PathBuf, Vec<Split>),
    /// One that is read while training goes on.
    Stream(PathBuf, Vec<Split>),
    Tokenizer(PathBuf),
    /// A chat template.
    Template(PathBuf),
    Adapter(PathBuf),
    /// Its folder and files.
    Task(PathBuf, Vec<PathBuf>),
}

impl<'a> Contents<'a> {
    /// `notify` is called for files that take long to read.
    pub fn new(notify: &'a dyn Fn(&str)) -> Self {
        Self { checksums: Checksums::new(notify), known: HashMap::new() }
    }

    /// SHA-256 of what the cell reads, by dotted key. Files that cannot be read have none: the cell itself reports what is
    /// wrong with them, and has another row once they can be read.
    pub fn inputs(&mut self, cell: &Cell) -> Inputs {
        let of = |(key, reads): (&str, Reads)| {
            let known = self.known.get(&reads).cloned();
            let sum = known.unwrap_or_else(|| {
                let sum = self.checksum(&reads);
                self.known.insert(reads, sum.clone());
                sum
            });
            Some((key.to_string(), sum?))
        };
        reads(cell).into_iter().filter_map(of).collect()
    }

    fn checksum(&self, reads: &Reads) -> Option<String> {
        let mut hash = Sha256::new();
        for path in reads.files()? {
            // Which split a text belongs to, and in which order, follows from its name.
            hash.update(path.strip_prefix(reads.root()).unwrap_or(&path).to_string_lossy().as_bytes());
            hash.update(match reads {
                Reads::Stream(..) => checksums::of_ends(&path).ok()?,
                _ => self.checksums.of_file(&path).ok()?,
            });
        }
        Some(hex(&hash.finalize()))
    }
}

/// What the cell reads from files, with the dotted keys that name them. A folder's `config.json` is in the cell
/// already, as its dimensions.
fn reads(cell: &Cell) -> Vec<(&'static str, Reads)> {
    let mut all = Vec::new();
    if let Some(WeightsFrom::Folder(folder)) = cell.model.weights() {
        all.push(("model.weights", Reads::Weights(hub::local(folder))));
    }
    if let Some(folder) = cell.tuning.folder() {
        all.push(("tuning.adapter", Reads::Adapter(folder.to_path_buf())));
    }
    if let Data::Text {
        corpus, reading, template, tokenizer, train_split, eval_split, shuffle_buffer, ..
    } = &cell.data
    {
        if let TextSource::Path(path) = corpus {
            let evaluated = cell.eval.map(|_| *eval_split);
            let splits = std::iter::once(*train_split).chain(evaluated).collect();
            let reads = if shuffle_buffer.is_some() { Reads::Stream } else { Reads::Corpus };
            all.push(("data.corpus", reads(hub::local_with(path, reading.needs()), splits)));
        }
        if let TokenizerSource::Path(path) = tokenizer {
            all.push(("data.tokenizer", Reads::Tokenizer(hub::local(path))));
        }
        // Others are known by a name, to the program or to the tokenizer's folder.
        if let Some(file) = template.as_ref().map(PathBuf::from).filter(|file| file.is_file()) {
            all.push(("data.template", Reads::Template(file)));
        }
    }
    let kind = cell.task.as_ref().map(|task| &task.kind);
    if let Some((kind, path)) = kind.and_then(|kind| Some((kind, kind.path()?))) {
        all.push(("task.path", Reads::Task(path, kind.files())));
    }
    all
}

/// The first of the files that a cell reads which is not there, with the dotted key that names it.
pub fn missing(cell: &Cell) -> Option<(&'static str, PathBuf)> {
    let missing = reads(cell).into_iter().find(|(_, reads)| !reads.root().exists());
    missing.map(|(key, reads)| (key, reads.root().to_path_buf()))
}

impl Reads {
    fn root(&self) -> &Path {
        match self {
            Self::Weights(path)
            | Self::Corpus(path, _)
            | Self::Stream(path, _)
            | Self::Tokenizer(path)
            | Self::Template(path)
            | Self::Adapter(path)
            | Self::Task(path, _) => path,
        }
    }

    /// `None` where nothing can be read.
    fn files(&self) -> Option<Vec<PathBuf>> {
        match self {
            Self::Weights(folder) => weights::files(folder).ok(),
            Self::Corpus(root, splits) | Self::Stream(root, splits) => {
                Some(Corpus::open(root).ok()?.files(splits))
            }
            Self::Tokenizer(path) => Some(Tokenizer::files(path)),
            Self::Template(file) => Some(vec![file.clone()]),
            Self::Adapter(folder) => Some([peft::CONFIG, peft::TENSORS].map(|file| folder.join(file)).into()),
            Self::Task(_, files) => Some(files.clone()),
        }
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
