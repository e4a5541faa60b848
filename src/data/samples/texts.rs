//! Samples of texts in memory, such as the problems of a task.

use std::sync::Arc;

use super::encode::encode_all;
use super::encoder::{Encoded, Encoder};
use super::store::Store;
use super::{Content, Prompted, Samples, Tokenize, token};
use crate::data::record::Record;
use crate::data::{DataError, Tokenizer, task};

impl Samples {
    /// Each text is a sequence of its own, ended by the end-of-text token, and cut to `max_length` tokens.
    ///
    /// # Errors
    /// When there is no text, or the vocabulary cannot express it.
    pub fn new(
        texts: Vec<String>,
        tokenizer: &Tokenizer,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Self, DataError> {
        let mut records = texts.into_iter().map(Record::Text).map(Ok);
        Self::records(&mut records, Encoder::new(tokenizer, false), max_length, tokenize)
    }

    /// Each prompt with its completion is a sequence whose last token predicts the tokenizer's end token, cut to
    /// `max_length` tokens.
    ///
    /// # Errors
    /// A tokenizer without an end token, a prompt that leaves nothing of its completion, and text that the
    /// vocabulary cannot express.
    pub fn prompted(
        texts: Vec<Prompted>,
        tokenizer: &Tokenizer,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Self, DataError> {
        let padding = tokenizer.require_eos()?;
        let mut records = texts.iter().cloned().map(Record::Pair).map(Ok);
        let samples = Self::made(&mut records, Encoder::new(tokenizer, false), max_length, tokenize)?;
        if let Some(text) = samples.without().next().map(|i| &texts[i]) {
            return Err(DataError::new(format!(
                "the prompt \"{}\" has {} tokens, and train.seq_len = {max_length} leaves nothing of its answer to \
                 learn; make train.seq_len larger",
                task::beginning(&text.prompt),
                tokenizer.sequence(&text.prompt, &text.completion, padding)?.1
            )));
        }
        Ok(Self { padding, ..samples })
    }

    /// Prompts alone, whose last tokens predict their classes.
    ///
    /// # Errors
    /// A prompt that is longer than `max_length`, and text that the vocabulary cannot express.
    pub fn classified(
        texts: &[Prompted],
        tokenizer: &Tokenizer,
        max_length: usize,
    ) -> Result<Self, DataError> {
        let mut store = Store::empty();
        for text in texts {
            let prompt = tokenizer.begin(&text.prompt)?;
            if prompt.len() > max_length {
                return Err(DataError::new(format!(
                    "\"{}\" has {} tokens, and a classifier reads it whole; make train.seq_len = {max_length} larger",
                    task::beginning(&text.prompt),
                    prompt.len()
                )));
            }
            let last_label = Some(text.completion.parse().expect("the completion is a class"));
            store.push(&Encoded { tokens: token::after(&prompt, prompt.len()), last_label });
        }
        let padding = tokenizer.require_eos()?;
        Ok(Self { content: Content::Stored(Arc::new(store)), kept: None, padding, max_length })
    }

    /// Texts joined, each a sequence that the end-of-text token ends, and cut into [`blocks`](Self::blocks).
    ///
    /// # Errors
    /// As [`Samples::blocks`], and when the vocabulary cannot express a text.
    pub fn joined(texts: &[String], tokenizer: &Tokenizer, length: usize) -> Result<Self, DataError> {
        let mut records = texts.iter().cloned().map(Record::Text).map(Ok);
        Self::blocks(Arc::new(encode_all(&mut records, &Encoder::new(tokenizer, true), false)?), length)
    }
}
