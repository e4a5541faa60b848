//! Training data: text corpora, tokenizers, samples and their batches.
//!
//! A corpus gives documents, and a tokenizer turns each into tokens. Samples are blocks of one sequence each,
//! cut from the tokens of all documents, or the documents or their paragraphs themselves, or the problems of a task.
//! A sampler says which make up a batch, a collator makes it and a loader has it ready in time.

mod cache;
pub mod chat;
mod check;
pub mod collate;
pub mod corpus;
mod generated;
pub mod loader;
pub mod pairs;
pub mod prompts;
pub mod reader;
pub mod record;
pub mod sampler;
pub mod samples;
pub mod section;
mod share;
mod shared;
mod split_names;
pub mod statistics;
mod stream;
pub mod task;
mod text;
pub mod tokenizer;
mod trained;
mod words;

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use chat::Chats;
pub use check::Found;
pub use collate::{Collated, Collator};
pub use corpus::{Corpus, Split};
pub use loader::{Finish, Loader};
pub use pairs::Sources;
pub use prompts::{Generate, Prompts};
pub use reader::Reading;
pub use sampler::{
    Balanced, Blocks, Draw, Draws, LastSample, Packed, Padded, Position, Rows, Sampler, SamplerConfig,
    SamplingPlan, Standard,
};
use samples::{Encoded, Store};
pub use samples::{Prompted, SampleUnit, Samples, Token, Tokenize};
pub use section::{Data, Learn, TextSource, TokenizerSource};
pub use share::Share;
pub use stream::Stream;
pub use task::Task;
pub use text::TextDataset;
pub use tokenizer::Tokenizer;
use trained::trained;

use crate::params::hub;

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

/// What a text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Train,
    /// What is evaluated on.
    HeldOut,
}

/// The corpus of `[data]`: found, made anew from the seed, or the task's.
fn opened(
    source: &TextSource,
    reading: &Reading,
    task: Option<&Task>,
    seed: u64,
    splits: [Split; 2],
) -> Result<Corpus, DataError> {
    Ok(match source {
        TextSource::Generated { size } => Corpus::Generated { seed, bytes: size.0 },
        TextSource::Path(path) => {
            let root = hub::fetched(path, reading.needs()).map_err(DataError::new)?;
            Corpus::open(&root)?.read_by(reading.clone(), seed, splits)
        }
        TextSource::Task => {
            let task = task.expect("checked: there is a task");
            Corpus::Task(Box::new(task.kind.problems(seed)?))
        }
    })
}

impl Dataset {
    /// Finds the corpus, and loads the tokenizer or trains it on the training split.
    /// `vocab_size` is the model's.
    ///
    /// # Errors
    /// Missing or damaged files, and a tokenizer that is trained to more tokens than the model has.
    ///
    /// # Panics
    /// When the corpus is the task's and there is no task.
    pub fn open(data: &Data, task: Option<&Task>, seed: u64, vocab_size: usize) -> Result<Self, DataError> {
        let Data::Text {
            corpus,
            reading,
            template,
            template_variables,
            learn,
            tokenizer: source,
            train_split,
            eval_split,
            shuffle_buffer,
            ..
        } = data
        else {
            return Ok(Self::Random { seed, vocab_size });
        };
        let (train_split, eval_split) = (*train_split, *eval_split);
        let classified = task.is_some_and(|task| task.kind.classes().is_some());
        let corpus = opened(corpus, reading, task, seed, [train_split, eval_split])?;
        let skip_broken = reading.skip_broken;
        let divided = reading.held_out.map(|_| (seed, train_split, eval_split));
        let reading = format!("{reading:?} {divided:?}");
        let tokenizer = match source {
            TokenizerSource::Train { vocab_size } => {
                let key =
                    text::key(&corpus, &reading, train_split).map(|key| key.with("trained on", "documents"));
                trained(key, || corpus.documents(train_split), *vocab_size)?
            }
            TokenizerSource::Path(path) => Tokenizer::load(path)?,
        };
        let own = match source {
            TokenizerSource::Train { .. } => None,
            TokenizerSource::Path(path) => Some(path.clone()),
        };
        let chats = Arc::new(Chats::new(own, template.clone(), template_variables.clone(), *learn));
        // That of a folder may have tokens which no text has, and for which its model has no rows.
        if matches!(source, TokenizerSource::Train { .. }) && tokenizer.vocab_size() > vocab_size {
            return Err(DataError::new(format!(
                "the tokenizer has {} tokens, but model.vocab_size is {vocab_size}; make data.vocab_size smaller or \
                 model.vocab_size larger",
                tokenizer.vocab_size()
            )));
        }
        let tokenizer = tokenizer.of_rows(vocab_size);
        Ok(Self::Text(Box::new(TextDataset {
            corpus,
            tokenizer,
            chats,
            learn: *learn,
            reading,
            shuffle_buffer: *shuffle_buffer,
            skip_broken,
            classified,
            train_split,
            eval_split,
        })))
    }

    /// The samples to train on, buffer by buffer, where `data.shuffle_buffer` says that they are read as training goes on.
    pub fn stream(&self, config: &SamplerConfig, max_length: usize, seed: u64) -> Option<Stream> {
        match self {
            Self::Random { .. } => None,
            Self::Text(text) => text.stream(config, max_length, seed),
        }
    }

    /// What the sampler draws from, of at most `max_length` tokens each.
    ///
    /// # Errors
    /// A split without text, with less than one block of it, or that the vocabulary cannot express.
    pub fn samples(
        &self,
        part: Part,
        config: &SamplerConfig,
        max_length: usize,
    ) -> Result<Samples, DataError> {
        let text = match self {
            Self::Random { seed, vocab_size } => return random(*seed, part, *vocab_size, max_length),
            Self::Text(text) => text,
        };
        let split = match part {
            Part::Train => text.train_split,
            Part::HeldOut => text.eval_split,
        };
        if let Corpus::Task(problems) = &text.corpus {
            if text.classified {
                return Samples::classified(&problems.texts(split), &text.tokenizer, max_length);
            }
            let samples = match problems.are_chats {
                true => text.samples(split, config, max_length)?,
                false => {
                    Samples::prompted(problems.texts(split), &text.tokenizer, max_length, config.tokenize)?
                }
            };
            let duplicates = if split == Split::Train { problems.duplicates as u64 } else { 0 };
            return Ok(samples.without_records(0, duplicates));
        }
        text.samples(split, config, max_length)
    }
}

/// Random numbers that depend on the seed and on what they are for.
fn random_stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// Tokens of equal probability.
fn random(seed: u64, part: Part, vocab_size: usize, seq_len: usize) -> Result<Samples, DataError> {
    let mut rng = random_stream(seed, part as u64);
    let mut token = |_| Token::learned(rng.random_range(0..vocab_size as u32));
    let tokens = (0..RANDOM_BLOCKS * seq_len).map(&mut token).collect();
    let mut store = Store::empty();
    store.push(&Encoded { tokens, last_label: None });
    Samples::blocks(Arc::new(store), seq_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Bytes;

    fn blocks() -> SamplerConfig {
        SamplerConfig::of(Sampler::Blocks(Blocks {}))
    }

    fn tokens(samples: &Samples) -> Vec<Vec<u32>> {
        let ids = |i| samples.get(i).unwrap().tokens.iter().map(|token| token.id()).collect();
        (0..samples.len()).map(ids).collect()
    }

    #[test]
    fn a_generated_corpus_becomes_blocks() {
        let data = Data::Text {
            corpus: TextSource::Generated { size: Bytes(100_000) },
            reading: Box::default(),
            template: None,
            template_variables: None,
            learn: Learn::default(),
            tokenizer: TokenizerSource::Train { vocab_size: 512 },
            train_split: Split::Train,
            eval_split: Split::Valid,
            shuffle_buffer: None,
            sampler: blocks(),
        };
        let dataset = Dataset::open(&data, None, 42, 512).unwrap();
        let [train, eval] =
            [Part::Train, Part::HeldOut].map(|part| dataset.samples(part, &blocks(), 64).unwrap());
        assert!(train.len() > 100 && eval.len() > 10, "{} and {}", train.len(), eval.len());
        let Dataset::Text(text) = &dataset else { panic!("not text") };
        let text = text.tokenizer.decode(&tokens(&train)[0]);
        assert!(text.is_ascii() && text.contains(' '), "{text}");
        let message = Dataset::open(&data, None, 42, 300).unwrap_err().to_string();
        assert!(message.contains("the tokenizer has 512 tokens, but model.vocab_size is 300"), "{message}");
        assert!(message.contains("make data.vocab_size smaller"), "{message}");
    }

    #[test]
    fn random_tokens_cover_the_vocabulary_and_repeat() {
        let dataset = Dataset::open(&Data::Random, None, 7, 50).unwrap();
        let of = |part| tokens(&dataset.samples(part, &blocks(), 8).unwrap());
        let train = of(Part::Train);
        assert_eq!(train.len(), RANDOM_BLOCKS);
        assert_eq!(train, of(Part::Train));
        assert_ne!(train, of(Part::HeldOut));
        assert!((0..50).all(|id| train.iter().flatten().any(|token| *token == id)));
        assert!(train.iter().flatten().all(|token| *token < 50));
    }
}
