//! Training data: text corpora, tokenizers, and tokens as blocks or as samples.
//!
//! A corpus gives documents, a tokenizer turns each into tokens, and the tokens of all documents,
//! joined by the end-of-text token, are cut into blocks of one sequence each. With `data.sampler` the
//! documents, or their paragraphs, stay samples: a sampler says which make up a batch, a collator makes it
//! and a loader has it ready in time.

pub mod blocks;
mod check;
pub mod collate;
pub mod corpus;
mod generated;
pub mod loader;
pub mod sampler;
pub mod samples;
pub mod section;
pub mod tokenizer;
mod words;

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use blocks::{Batches, Blocks, Position};
pub use collate::{Collated, Collator, Segments};
pub use corpus::{Corpus, Split};
pub use loader::{Finish, Loaded, Loader};
pub use sampler::{
    Balanced, Draws, LastSample, Packed, Padded, Plan, Rows, Sampler, SamplerConfig, Standard,
};
pub use samples::{SampleUnit, Samples, Tokenize};
pub use section::{Data, TextSource, TokenizerSource};
pub use tokenizer::Tokenizer;

/// Blocks of random tokens that are made before they repeat.
const RANDOM_BLOCKS: usize = 1024;

/// What is wrong with a corpus or a tokenizer, and what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DataError(String);

impl DataError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Where a cell's tokens come from.
#[derive(Debug)]
pub enum Dataset {
    Random { seed: u64, vocab_size: usize },
    Text(Box<TextDataset>),
}

/// A corpus and its tokenizer.
#[derive(Debug)]
pub struct TextDataset {
    pub corpus: Corpus,
    pub tokenizer: Tokenizer,
    pub train_split: Split,
    pub eval_split: Split,
}

impl Dataset {
    /// Finds the corpus, and loads the tokenizer or trains it on the training split.
    /// `vocab_size` is the model's.
    ///
    /// # Errors
    /// Missing or damaged files, and a tokenizer with more tokens than the model has.
    pub fn open(data: &Data, seed: u64, vocab_size: usize) -> Result<Self, DataError> {
        let Data::Text { corpus, tokenizer: source, train_split, eval_split, .. } = data else {
            return Ok(Self::Random { seed, vocab_size });
        };
        let (train_split, eval_split) = (*train_split, *eval_split);
        let corpus = match corpus {
            TextSource::Generated { size } => Corpus::generated(seed, size.0),
            TextSource::Path(path) => Corpus::open(path)?,
        };
        let tokenizer = match source {
            TokenizerSource::Train { vocab_size } => {
                Tokenizer::train(&corpus.documents(train_split)?, *vocab_size)?
            }
            TokenizerSource::Path(path) => Tokenizer::load(path)?,
        };
        if tokenizer.vocab_size() > vocab_size {
            let advice = match source {
                TokenizerSource::Train { .. } => {
                    "make data.vocab_size smaller or model.vocab_size larger".into()
                }
                TokenizerSource::Path(path) => {
                    format!("{} is not the model's: name its own in data.tokenizer", path.display())
                }
            };
            return Err(DataError::new(format!(
                "the tokenizer has {} tokens, but model.vocab_size is {vocab_size}; {advice}",
                tokenizer.vocab_size()
            )));
        }
        Ok(Self::Text(Box::new(TextDataset { corpus, tokenizer, train_split, eval_split })))
    }

    /// The blocks to train on.
    ///
    /// # Errors
    /// As [`TextDataset::blocks`].
    pub fn train_blocks(&self, seq_len: usize) -> Result<Blocks, DataError> {
        match self {
            Self::Random { seed, vocab_size } => random(*seed, 0, *vocab_size, seq_len),
            Self::Text(text) => text.blocks(text.train_split, seq_len),
        }
    }

    /// The blocks to evaluate on.
    ///
    /// # Errors
    /// As [`TextDataset::blocks`].
    pub fn eval_blocks(&self, seq_len: usize) -> Result<Blocks, DataError> {
        match self {
            Self::Random { seed, vocab_size } => random(*seed, 1, *vocab_size, seq_len),
            Self::Text(text) => text.blocks(text.eval_split, seq_len),
        }
    }
}

impl TextDataset {
    /// The documents of a split as blocks of `seq_len` tokens.
    ///
    /// # Errors
    /// A split without text, or with less than one block of it.
    pub fn blocks(&self, split: Split, seq_len: usize) -> Result<Blocks, DataError> {
        let tokens = self.tokenizer.encode_batch(&self.corpus.documents(split)?)?;
        let blocks = Blocks::new(tokens, self.tokenizer.end_of_text()?, seq_len);
        blocks.map_err(|e| DataError::new(format!("the split \"{}\": {e}", split.into_str())))
    }

    /// The samples of a split, cut to `max_length` tokens.
    ///
    /// # Errors
    /// As [`Samples::new`].
    pub fn samples(
        &self,
        split: Split,
        unit: SampleUnit,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Samples, DataError> {
        let texts = match unit {
            SampleUnit::Documents => self.corpus.documents(split)?,
            SampleUnit::Paragraphs => self.corpus.paragraphs(split)?,
        };
        Samples::new(texts, &self.tokenizer, max_length, tokenize)
    }
}

/// Tokens of equal probability.
fn random(seed: u64, stream: u64, vocab_size: usize, seq_len: usize) -> Result<Blocks, DataError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    let tokens = (0..RANDOM_BLOCKS * seq_len).map(|_| rng.random_range(0..vocab_size as u32)).collect();
    Blocks::from_tokens(tokens, seq_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Bytes;

    #[test]
    fn a_generated_corpus_becomes_blocks() {
        let data = Data::Text {
            corpus: TextSource::Generated { size: Bytes(100_000) },
            tokenizer: TokenizerSource::Train { vocab_size: 512 },
            train_split: Split::Train,
            eval_split: Split::Valid,
            sampler: None,
        };
        let dataset = Dataset::open(&data, 42, 512).unwrap();
        let (train, eval) = (dataset.train_blocks(64).unwrap(), dataset.eval_blocks(64).unwrap());
        assert!(train.len() > 100 && eval.len() > 10, "{} and {}", train.len(), eval.len());
        let Dataset::Text(text) = &dataset else { panic!("not text") };
        let text = text.tokenizer.decode(train.get(0)).unwrap();
        assert!(text.is_ascii() && text.contains(' '), "{text}");
        let message = Dataset::open(&data, 42, 300).unwrap_err().to_string();
        assert!(message.contains("the tokenizer has 512 tokens, but model.vocab_size is 300"), "{message}");
        assert!(message.contains("make data.vocab_size smaller"), "{message}");
    }

    #[test]
    fn random_tokens_cover_the_vocabulary_and_repeat() {
        let dataset = Dataset::open(&Data::Random, 7, 50).unwrap();
        let (train, again) = (dataset.train_blocks(8).unwrap(), dataset.train_blocks(8).unwrap());
        assert_eq!(train.len(), RANDOM_BLOCKS);
        assert_eq!(train.get(5), again.get(5));
        assert_ne!(train.get(5), dataset.eval_blocks(8).unwrap().get(5));
        assert!((0..50).all(|id| train.iter().flatten().any(|token| *token == id)));
        assert!(train.iter().flatten().all(|token| *token < 50));
    }
}
