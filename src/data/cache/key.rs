//! [`Key`]: what decides the tokens of a text.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::common::checksums::Checksums;
use crate::common::text::hex;

/// Whose rules make tokens of texts, and a vocabulary of documents.
pub const TOKENIZERS: &str = "tokenizers 0.23.2";

/// A hash of all that decides the tokens of a text.
#[derive(Clone, Debug)]
pub struct Key(Sha256);

impl Key {
    pub fn new() -> Self {
        Self(Sha256::new()).with("by", TOKENIZERS)
    }

    /// With a setting, or what was read.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), value.as_ref()] {
            // Lengths keep one part and the next apart.
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// With the content of files, and their names within the folder that holds all of them, which say what they are. `None`
    /// where one cannot be read.
    pub fn with_files(self, files: &[PathBuf]) -> Option<Self> {
        // A run that looks at rows has read large files already, and told it.
        let checksums = Checksums::new(&|_| ());
        let root = files.first().map_or(Path::new(""), |first| {
            let holds_all = |folder: &&Path| files.iter().all(|path| path.starts_with(folder));
            first.ancestors().skip(1).find(holds_all).unwrap_or(Path::new(""))
        });
        files.iter().try_fold(self, |key, path| {
            let name = path.strip_prefix(root).unwrap_or(path);
            let sum = checksums.of_file(path).ok()?;
            Some(key.with("file", name.to_string_lossy().as_bytes()).with("content", sum))
        })
    }

    /// Of its file.
    pub fn name(&self) -> String {
        hex(&self.0.clone().finalize()[..16])
    }
}
