//! [`TextDataset`]: a corpus and its tokenizer, and the samples that they make.

use std::sync::Arc;

use super::cache::{self, Key};
use super::chat::Chats;
use super::reader::Records;
use super::record::Chat;
use super::samples::{Encoder, encode_all};
use super::stream::{Reads, Stream};
use super::{Corpus, DataError, Learn, SampleUnit, SamplerConfig, Samples, Split, Tokenize, Tokenizer};

/// A corpus and its tokenizer.
#[derive(Debug)]
pub struct TextDataset {
    pub corpus: Corpus,
    pub tokenizer: Tokenizer,
    /// What makes tokens of chats.
    pub chats: Arc<Chats>,
    pub(super) learn: Learn,
    /// What else decides which records a split has.
    pub(super) reading: String,
    /// Samples that are read at a time; `None`: all.
    pub(super) shuffle_buffer: Option<usize>,
    /// Whether records that have no tokens are left out.
    pub(super) skip_broken: bool,
    /// Whether the problems of a task have classes.
    pub(super) classified: bool,
    pub train_split: Split,
    pub eval_split: Split,
}

impl TextDataset {
    /// Of a corpus that is no task.
    pub(super) fn samples(
        &self,
        split: Split,
        config: &SamplerConfig,
        max_length: usize,
    ) -> Result<Samples, DataError> {
        let (unit, joins, encoder) = self.encoder(config);
        if config.tokenize == Tokenize::EveryStep {
            let mut records = self.records(split, unit)?;
            let samples = Samples::late(&mut records, encoder, max_length, self.skip_broken)?;
            let left_out = records.left_out();
            return Ok(samples.without_records(left_out.broken as u64, left_out.duplicates as u64));
        }
        let padding = encoder.padding();
        let key = self.key(split, unit, joins)?;
        let store = cache::tokens(key.as_ref(), || {
            let mut records = self.records(split, unit)?;
            let mut store = encode_all(&mut records, &encoder, self.skip_broken)?;
            let left_out = records.left_out();
            store.broken += left_out.broken as u64;
            store.duplicates = left_out.duplicates as u64;
            match &self.corpus {
                Corpus::Files(files) if store.is_empty() => Err(files.no_text(split)),
                _ => Ok(store),
            }
        })?;
        match joins {
            true => Samples::blocks(store, max_length)
                .map_err(|e| DataError::new(format!("the split \"{}\": {e}", split.into_str()))),
            false => Samples::stored(store, padding, max_length),
        }
    }

    /// The samples to train on, where they are read as training goes on.
    pub(super) fn stream(&self, config: &SamplerConfig, max_length: usize, seed: u64) -> Option<Stream> {
        let (samples, (unit, joins, encoder)) = (self.shuffle_buffer?, self.encoder(config));
        Some(Stream::new(Reads {
            corpus: self.corpus.clone(),
            split: self.train_split,
            unit,
            encoder,
            rows: self.tokenizer.rows(),
            skip_broken: self.skip_broken,
            joins,
            samples,
            max_length,
            seed,
        }))
    }

    /// What a sample of text is, whether samples are joined, and what makes their tokens.
    fn encoder(&self, config: &SamplerConfig) -> (SampleUnit, bool, Encoder) {
        let joins = !config.sampler.keeps_samples();
        let unit = if joins { SampleUnit::Documents } else { config.samples };
        let chats = Arc::clone(&self.chats);
        let encode = move |chat: &Chat, tokenizer: &Tokenizer| chats.encode(chat, tokenizer);
        let encoder = Encoder::new(&self.tokenizer, joins).with_chats(Arc::new(encode));
        (unit, joins, if self.learn == Learn::All { encoder.learning_all() } else { encoder })
    }

    fn records(&self, split: Split, unit: SampleUnit) -> Result<Records, DataError> {
        Ok(self.corpus.records(split, unit)?.within(self.tokenizer.rows()))
    }

    /// Of the tokens of a split; `None` where it cannot be known without making them.
    fn key(&self, split: Split, unit: SampleUnit, joins: bool) -> Result<Option<Key>, DataError> {
        let Some(key) = key(&self.corpus, &self.reading, split) else { return Ok(None) };
        let key =
            key.with("tokenizer", self.tokenizer.identity()?).with("records", format!("{unit:?} {joins}"));
        let is_read = matches!(self.corpus, Corpus::Files(_));
        Ok(Some(if is_read { key.with("chats", self.chats.identity()) } else { key }))
    }
}

/// Of the records of a split, which are read as `reading` says; `None` where they are those of a task.
pub(super) fn key(corpus: &Corpus, reading: &str, split: Split) -> Option<Key> {
    let key = Key::new().with("split", split.into_str());
    match corpus {
        Corpus::Files(_) => key.with("reading", reading).with_files(&corpus.files(&[split])),
        // Their text is that of the program.
        Corpus::Generated { seed, bytes } => {
            Some(key.with("generated", format!("{seed} {bytes} {}", env!("RUNNER_BUILD"))))
        }
        Corpus::Task(_) => None,
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
