//! [`Samples`]: the documents or paragraphs of a corpus or the problems of a task one by one, each cut to a largest
//! length, or all text as blocks of that length.

use std::borrow::Cow;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{DataError, Tokenizer, task};

/// `data.samples`: what a sample of a corpus is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleUnit {
    /// A line of text that is no heading, as WikiText has its paragraphs.
    #[default]
    Paragraphs,
    Documents,
}

/// `data.tokenize`: when text becomes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokenize {
    /// Before training.
    #[default]
    Once,
    /// Whenever a batch is collated.
    EveryStep,
}

/// Text that follows a prompt and is learned, or the number of the prompt's class; the prompt is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompted {
    pub prompt: String,
    pub completion: String,
}

/// Texts of a split and what turns them into tokens.
pub struct Samples {
    content: Content,
    /// Fills up a batch.
    padding: u32,
    max_length: usize,
}

enum Content {
    /// The samples' tokens, uncut, one after the other.
    Tokens { tokens: Vec<u32>, places: Vec<Place> },
    Texts {
        texts: Vec<Prompted>,
        /// Of each text in tokens, uncut.
        lengths: Vec<usize>,
        tokenizer: Box<Tokenizer>,
        /// Behind every text.
        end: End,
    },
}

/// What the token behind a text is.
#[derive(Clone, Copy)]
enum End {
    /// A token of the sample, as between the texts of blocks.
    Token(u32),
    /// The label of the last token alone: nothing follows an answer, and so its end is not computed.
    Label(u32),
}

/// Where a sample ends among the tokens of all, and how many of its own are its prompt.
#[derive(Clone, Copy)]
struct Place {
    end: usize,
    prompt: usize,
    last_label: Option<u32>,
}

/// The tokens of a sample, at most `max_length`, and how many more it had.
pub struct Sample<'a> {
    pub tokens: Cow<'a, [u32]>,
    /// How many of them, or of all, are given: none of these is predicted.
    pub prompt: usize,
    /// What the last token predicts where no token follows: a class, or the end of an answer.
    pub last_label: Option<u32>,
    pub cut: usize,
}

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
        if texts.is_empty() {
            return Err(DataError::new(
                "the split has no samples: with samples = \"paragraphs\" a corpus needs lines of text",
            ));
        }
        let alone = |completion| Prompted { prompt: String::new(), completion };
        let texts = texts.into_iter().map(alone).collect();
        Self::build(texts, tokenizer, End::Token(tokenizer.end_of_text()?), max_length, tokenize)
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
        Self::build(texts, tokenizer, End::Label(tokenizer.require_eos()?), max_length, tokenize)
    }

    fn build(
        texts: Vec<Prompted>,
        tokenizer: &Tokenizer,
        end: End,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Self, DataError> {
        let encoded: Vec<Encoded> =
            texts.par_iter().map(|text| encode(text, tokenizer, end)).collect::<Result<_, _>>()?;
        if let Some(i) = encoded.iter().position(|text| text.prompt >= max_length) {
            return Err(DataError::new(format!(
                "the prompt \"{}\" has {} tokens, and train.seq_len = {max_length} leaves nothing of its answer to \
                 learn; make train.seq_len larger",
                task::beginning(&texts[i].prompt),
                encoded[i].prompt
            )));
        }
        let content = match tokenize {
            // The lengths alone are kept: how large a batch can be follows from them.
            Tokenize::EveryStep => Content::Texts {
                lengths: encoded.iter().map(|text| text.tokens.len()).collect(),
                texts,
                tokenizer: Box::new(tokenizer.clone()),
                end,
            },
            Tokenize::Once => {
                let (tokens, places) = join(encoded);
                Content::Tokens { tokens, places }
            }
        };
        let (End::Token(padding) | End::Label(padding)) = end;
        Ok(Self { content, padding, max_length })
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
        let (mut tokens, mut places) = (Vec::new(), Vec::new());
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
            tokens.extend(&prompt);
            places.push(Place { end: tokens.len(), prompt: prompt.len(), last_label });
        }
        let content = Content::Tokens { tokens, places };
        Ok(Self { content, padding: tokenizer.require_eos()?, max_length })
    }

    /// Texts joined, each a sequence that the end-of-text token ends, and cut into [`blocks`](Self::blocks).
    ///
    /// # Errors
    /// As [`Samples::blocks`], and when the vocabulary cannot express a text.
    pub fn joined(texts: &[String], tokenizer: &Tokenizer, length: usize) -> Result<Self, DataError> {
        let end = tokenizer.end_of_text()?;
        let encoded: Vec<Vec<u32>> = texts
            .par_iter()
            .map(|text| tokenizer.sequence("", text, end).map(|(tokens, _)| tokens))
            .collect::<Result<_, _>>()?;
        Self::blocks(encoded.concat(), length)
    }

    /// Blocks of `length` tokens, one after the other. What is left over after the last whole block is
    /// dropped.
    ///
    /// # Errors
    /// When there is not one whole block.
    pub fn blocks(mut tokens: Vec<u32>, length: usize) -> Result<Self, DataError> {
        if tokens.len() < length {
            return Err(DataError::new(format!(
                "the corpus has {} tokens, less than one sequence of {length}; make train.seq_len smaller \
                 or the corpus larger",
                tokens.len()
            )));
        }
        let count = tokens.len() / length;
        tokens.truncate(count * length);
        let place = |block| Place { end: block * length, prompt: 0, last_label: None };
        let places = (1..=count).map(place).collect();
        // No block is filled up.
        Ok(Self { content: Content::Tokens { tokens, places }, padding: 0, max_length: length })
    }

    /// Number of samples.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one sample")]
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Tokens { places, .. } => places.len(),
            Content::Texts { texts, .. } => texts.len(),
        }
    }

    /// The token that fills up a batch: nothing is predicted at it, and no other token sees it.
    pub fn padding(&self) -> u32 {
        self.padding
    }

    /// The length of every sample in tokens, cut.
    pub fn lengths(&self) -> Vec<u32> {
        let cut = |length: usize| length.min(self.max_length) as u32;
        match &self.content {
            Content::Tokens { places, .. } => {
                let ends = || places.iter().map(|place| place.end);
                std::iter::once(0).chain(ends()).zip(ends()).map(|(start, end)| cut(end - start)).collect()
            }
            Content::Texts { lengths, .. } => lengths.iter().map(|length| cut(*length)).collect(),
        }
    }

    /// # Errors
    /// When the vocabulary cannot express a text that is tokenised now.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn get(&self, index: usize) -> Result<Sample<'_>, DataError> {
        let (tokens, prompt, last_label, length): (Cow<[u32]>, usize, Option<u32>, usize) =
            match &self.content {
                Content::Tokens { tokens, places } => {
                    let Place { end, prompt, last_label } = places[index];
                    let start = if index == 0 { 0 } else { places[index - 1].end };
                    let length = end - start;
                    (Cow::from(&tokens[start..][..length.min(self.max_length)]), prompt, last_label, length)
                }
                Content::Texts { texts, tokenizer, end, .. } => {
                    let Encoded { mut tokens, prompt, last_label } = encode(&texts[index], tokenizer, *end)?;
                    let length = tokens.len();
                    tokens.truncate(self.max_length);
                    (tokens.into(), prompt, last_label, length)
                }
            };
        let cut = length - tokens.len();
        // The last token of what is left is not that of the whole.
        Ok(Sample { tokens, prompt, last_label: last_label.filter(|_| cut == 0), cut })
    }
}

/// A whole sample.
struct Encoded {
    tokens: Vec<u32>,
    prompt: usize,
    last_label: Option<u32>,
}

fn encode(text: &Prompted, tokenizer: &Tokenizer, end: End) -> Result<Encoded, DataError> {
    let (End::Token(token) | End::Label(token)) = end;
    let (mut tokens, prompt) = tokenizer.sequence(&text.prompt, &text.completion, token)?;
    let last_label = match end {
        End::Token(_) => None,
        End::Label(_) => tokens.pop(),
    };
    Ok(Encoded { tokens, prompt, last_label })
}

/// The tokens of all samples, and where each one ends.
fn join(samples: Vec<Encoded>) -> (Vec<u32>, Vec<Place>) {
    let (mut tokens, mut places) = (Vec::new(), Vec::new());
    for sample in samples {
        tokens.extend(sample.tokens);
        places.push(Place { end: tokens.len(), prompt: sample.prompt, last_label: sample.last_label });
    }
    (tokens, places)
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod tests;
