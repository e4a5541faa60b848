//! [`Corpus`]: documents of text, in splits, from files, generated, or the problems of a task.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::documents::{ending, heading, read};
use super::task::Problems;
use super::{DataError, Prompted, generated};
use crate::words::text::few;

/// Endings of the files that belong to a corpus.
const EXTENSIONS: [&str; 4] = ["tokens", "raw", "txt", "jsonl"];

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

    /// The split that a word of a file name speaks of.
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "train" | "training" => Some(Self::Train),
            "valid" | "validation" | "val" | "dev" => Some(Self::Valid),
            "test" => Some(Self::Test),
            _ => None,
        }
    }

    /// The split that a path speaks of, such as `wiki.valid.tokens` or `test/a.txt`; a path that
    /// speaks of none is for training.
    fn of_path(path: &Path) -> Self {
        let text = path.to_string_lossy().to_lowercase();
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        words.find_map(Self::of_word).unwrap_or(Self::Train)
    }
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
    /// A file, or a folder of `*.txt`, `*.tokens`, `*.raw` (WikiText) and `*.jsonl` files.
    ///
    /// # Errors
    /// A path without such files.
    pub fn open(root: &Path) -> Result<Self, DataError> {
        let mut files = Vec::new();
        if root.is_file() {
            let name = root.file_name().map(Path::new).unwrap_or(root);
            files.push((Split::of_path(name), root.to_path_buf()));
        } else {
            for entry in WalkDir::new(root).follow_links(true).sort_by_file_name() {
                let entry = entry
                    .map_err(|e| DataError::new(format!("cannot read the corpus {}: {e}", root.display())))?;
                let path = entry.path();
                if entry.file_type().is_file() && EXTENSIONS.contains(&ending(path).as_str()) {
                    let name = path.strip_prefix(root).unwrap_or(path);
                    files.push((Split::of_path(name), path.to_path_buf()));
                }
            }
        }
        if files.is_empty() {
            return Err(DataError::new(format!(
                "{} holds no text: a corpus has files that end in .{}",
                root.display(),
                EXTENSIONS.join(", .")
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
            Self::Files { root, files } => {
                let of_split = files.iter().filter(|(of, _)| *of == split);
                let documents = of_split.map(|(_, path)| read(path)).collect::<Result<Vec<_>, _>>()?.concat();
                if documents.is_empty() { Err(no_text(root, files, split)) } else { Ok(documents) }
            }
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

    /// The paragraphs of a split: its documents' lines without headings, none of them empty.
    ///
    /// # Errors
    /// As [`Corpus::documents`].
    pub fn paragraphs(&self, split: Split) -> Result<Vec<String>, DataError> {
        let documents = self.documents(split)?;
        Ok(match self {
            Self::Generated { seed, .. } => generated::paragraphs(&documents, *seed, split),
            Self::Task(_) => documents,
            Self::Files { .. } => documents
                .iter()
                .flat_map(|text| text.lines())
                .map(str::trim)
                .filter(|line| !line.is_empty() && heading(line).is_none())
                .map(str::to_string)
                .collect(),
        })
    }
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
mod tests {
    use super::*;

    const WIKI: &str = " \n = First article = \n \n A line . \n \n = = Section = = \n \n x = y = z \n \
                        Another line . \n \n = Second = \n \n Text . \n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn wikitext_is_split_at_titles() {
        let folder =
            folder(&[("wiki.valid.tokens", WIKI), ("wiki.test.tokens", " \n = Only = \n \n Text . \n")]);
        let corpus = Corpus::open(folder.path()).unwrap();
        let valid = corpus.documents(Split::Valid).unwrap();
        assert_eq!(valid.len(), 2);
        assert!(valid[0].starts_with("= First article =") && valid[0].ends_with("Another line ."));
        assert!(valid[0].contains("= = Section = ="));
        assert_eq!(valid[1], "= Second = \n \n Text .");
        let paragraphs = corpus.paragraphs(Split::Valid).unwrap();
        assert_eq!(paragraphs, ["A line .", "x = y = z", "Another line .", "Text ."]);
        assert_eq!(corpus.documents(Split::Test).unwrap().len(), 1);
        let message = corpus.documents(Split::Train).unwrap_err().to_string();
        assert!(
            message.contains("no text for \"train\"") && message.contains("wiki.train.tokens"),
            "{message}"
        );
        assert!(message.contains("wiki.valid.tokens"), "{message}");
    }

    #[test]
    fn text_files_are_documents_unless_they_mark_the_ends_of_theirs() {
        let folder = folder(&[
            ("b.txt", "One\n\nstory.\n"),
            ("a.txt", "First<|endoftext|>\nSecond\n<|endoftext|>\n"),
            ("test/c.txt", "Third"),
            ("README.md", "not text of the corpus"),
            ("my-val-set.txt", "Fourth"),
        ]);
        let corpus = Corpus::open(folder.path()).unwrap();
        assert_eq!(corpus.documents(Split::Train).unwrap(), ["First", "Second", "One\n\nstory."]);
        assert_eq!(corpus.documents(Split::Test).unwrap(), ["Third"]);
        assert_eq!(corpus.documents(Split::Valid).unwrap(), ["Fourth"]);
        let one = Corpus::open(&folder.path().join("b.txt")).unwrap();
        assert_eq!(one.documents(Split::Train).unwrap(), ["One\n\nstory."]);
    }

    #[test]
    fn json_lines_have_text_or_questions() {
        let folder = folder(&[
            ("train.jsonl", "{\"question\": \"1+1?\", \"answer\": \"2\"}\n\n{\"text\": \"T\"}\n"),
            ("test.jsonl", "{\"text\": \"T\"}\n{\"body\": 1}"),
        ]);
        let corpus = Corpus::open(folder.path()).unwrap();
        assert_eq!(corpus.documents(Split::Train).unwrap(), ["1+1?\n2", "T"]);
        let message = corpus.documents(Split::Test).unwrap_err().to_string();
        assert!(message.contains("test.jsonl, line 2: expected the key `text`"), "{message}");
    }

    #[test]
    fn what_is_no_corpus_is_named() {
        let folder = folder(&[("notes.md", "x")]);
        let message = Corpus::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains("holds no text: a corpus has files that end in .tokens"), "{message}");
        let message = Corpus::open(Path::new("no/such")).unwrap_err().to_string();
        assert!(message.contains("cannot read the corpus no/such"), "{message}");
        std::fs::write(folder.path().join("a.txt"), [0xff, 0xfe]).unwrap();
        let message = Corpus::open(folder.path()).unwrap().documents(Split::Train).unwrap_err().to_string();
        assert!(message.contains("a.txt"), "{message}");
    }
}
