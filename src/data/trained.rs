//! [`trained`]: the tokenizer of a corpus, remembered between runs. Every cell of a sweep asks for it, and a large vocabulary
//! takes seconds.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::cache::{Key, TOKENIZERS};
use super::{DataError, Tokenizer};
use crate::common::cache;
use crate::common::text::hex;

/// As [`Tokenizer::train`]; one that was trained on these documents before is read. Where a key decides the documents, they are
/// then not read.
///
/// # Errors
/// As [`Tokenizer::train`], and those of `documents`.
pub fn trained(
    key: Option<Key>,
    documents: impl FnOnce() -> Result<Vec<String>, DataError>,
    vocab_size: usize,
) -> Result<Tokenizer, DataError> {
    let folder = cache::folder("tokenizers");
    match key {
        Some(key) => {
            let name = format!("{}.json", key.with("vocab_size", vocab_size.to_string()).name());
            remembered(folder, &name, documents, vocab_size)
        }
        None => {
            let documents = documents()?;
            remembered(folder, &name(&documents, vocab_size), || Ok(documents), vocab_size)
        }
    }
}

fn remembered(
    folder: Option<PathBuf>,
    name: &str,
    documents: impl FnOnce() -> Result<Vec<String>, DataError>,
    vocab_size: usize,
) -> Result<Tokenizer, DataError> {
    let Some(folder) = folder else { return Tokenizer::train(&documents()?, vocab_size) };
    // A file of which a part is lost is no tokenizer.
    if let Ok(tokenizer) = Tokenizer::load(&folder.join(name)) {
        return Ok(tokenizer);
    }
    let tokenizer = Tokenizer::train(&documents()?, vocab_size)?;
    cache::keep(&folder, name, tokenizer.json()?.as_bytes());
    Ok(tokenizer)
}

fn name(documents: &[String], vocab_size: usize) -> String {
    let mut digest = Sha256::new();
    digest.update(format!("{TOKENIZERS} {vocab_size}"));
    for document in documents {
        // Lengths keep one document and the next apart.
        digest.update(format!(" {} ", document.len()));
        digest.update(document);
    }
    format!("{}.json", hex(&digest.finalize()[..16]))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn documents() -> Vec<String> {
        (0..40)
            .map(|i| format!("The quick brown fox {i} jumps over the lazy dog, and over {}.", i * 7))
            .collect()
    }

    /// The files there.
    fn files(folder: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect()
    }

    #[test]
    fn what_was_trained_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |documents: &[String], size| {
            let name = name(documents, size);
            let documents = || Ok(documents.to_vec());
            remembered(Some(folder.path().join("below")), &name, documents, size).expect("a tokenizer")
        };
        let documents = documents();
        let ids = |tokenizer: &Tokenizer| tokenizer.encode(&documents[7]).expect("its own text");
        let first = of(&documents, 300);
        let kept = files(&folder.path().join("below"));
        assert_eq!(kept.len(), 1);
        let again = of(&documents, 300);
        assert_eq!((ids(&again), again.ends()), (ids(&first), first.ends()));
        // It is this file that is read, and it is read only for the same documents and size.
        let other = Tokenizer::train(&documents, 270).expect("a tokenizer");
        std::fs::write(&kept[0], other.json().expect("text")).expect("writable");
        assert_eq!(ids(&of(&documents, 300)), ids(&other));
        assert_ne!(ids(&other), ids(&first));
        assert_eq!(
            ids(&of(&documents[1..], 300)),
            ids(&Tokenizer::train(&documents[1..], 300).expect("one"))
        );
        of(&documents, 301);
        assert_eq!(files(&folder.path().join("below")).len(), 3);
        // What is no tokenizer is trained again.
        std::fs::write(&kept[0], "{").expect("writable");
        assert_eq!(ids(&of(&documents, 300)), ids(&first));
    }
}
