//! [`Samples`]: the documents or paragraphs of a corpus one by one, each cut to a largest length, or all of its
//! text as blocks of that length.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{DataError, Tokenizer};

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

/// Texts of a split and what turns them into tokens.
pub struct Samples {
    content: Content,
    end_of_text: u32,
    max_length: usize,
}

enum Content {
    /// The samples' tokens, uncut, one after the other, and where each one ends.
    Tokens { tokens: Vec<u32>, ends: Vec<usize> },
    Texts {
        texts: Vec<String>,
        /// Of each text in tokens, uncut.
        lengths: Vec<usize>,
        tokenizer: Box<Tokenizer>,
    },
}

/// The tokens of a sample, at most `max_length`, and how many more it had.
pub struct Sample<'a> {
    pub tokens: Cow<'a, [u32]>,
    pub cut: usize,
}

impl Samples {
    /// Each text is followed by the end-of-text token, and cut to `max_length` tokens.
    ///
    /// # Errors
    /// When there is no text, or the vocabulary cannot express it.
    pub fn new(
        texts: Vec<String>,
        tokenizer: &Tokenizer,
        max_length: usize,
        tokenize: Tokenize,
    ) -> Result<Self, DataError> {
        let end_of_text = tokenizer.end_of_text()?;
        let encoded = tokenizer.encode_batch(&texts)?;
        let content = match tokenize {
            // The lengths alone are kept: how large a batch can be follows from them.
            Tokenize::EveryStep => Content::Texts {
                lengths: encoded.iter().map(|text| text.len() + 1).collect(),
                texts,
                tokenizer: Box::new(tokenizer.clone()),
            },
            Tokenize::Once => {
                let (tokens, ends) = join(encoded, end_of_text);
                Content::Tokens { tokens, ends }
            }
        };
        let samples = Self { content, end_of_text, max_length };
        match samples.len() {
            0 => Err(DataError::new(
                "the split has no samples: with samples = \"paragraphs\" a corpus needs lines of text",
            )),
            _ => Ok(samples),
        }
    }

    /// Texts joined, each followed by the end-of-text token, and cut into [`blocks`](Self::blocks).
    ///
    /// # Errors
    /// As [`Samples::blocks`], and when the vocabulary cannot express a text.
    pub fn joined(texts: &[String], tokenizer: &Tokenizer, length: usize) -> Result<Self, DataError> {
        let end_of_text = tokenizer.end_of_text()?;
        Self::blocks(join(tokenizer.encode_batch(texts)?, end_of_text).0, length)
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
        let ends = (1..=count).map(|block| block * length).collect();
        // No block is filled up.
        Ok(Self { content: Content::Tokens { tokens, ends }, end_of_text: 0, max_length: length })
    }

    /// Number of samples.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one sample")]
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Tokens { ends, .. } => ends.len(),
            Content::Texts { texts, .. } => texts.len(),
        }
    }

    /// The token that fills up a batch: nothing is predicted at it, and no other token sees it.
    pub fn padding(&self) -> u32 {
        self.end_of_text
    }

    /// The length of every sample in tokens, cut.
    pub fn lengths(&self) -> Vec<u32> {
        let cut = |length: usize| length.min(self.max_length) as u32;
        match &self.content {
            Content::Tokens { ends, .. } => {
                let starts = std::iter::once(&0).chain(ends);
                starts.zip(ends).map(|(start, end)| cut(end - start)).collect()
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
        let (tokens, length): (Cow<[u32]>, usize) = match &self.content {
            Content::Tokens { tokens, ends } => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                let length = ends[index] - start;
                (Cow::from(&tokens[start..][..length.min(self.max_length)]), length)
            }
            Content::Texts { texts, tokenizer, .. } => {
                let mut tokens = tokenizer.encode(&texts[index])?;
                tokens.push(self.end_of_text);
                let length = tokens.len();
                tokens.truncate(self.max_length);
                (tokens.into(), length)
            }
        };
        let cut = length - tokens.len();
        Ok(Sample { tokens, cut })
    }
}

/// The tokens of all texts, each followed by the end-of-text token, and where each one ends.
fn join(texts: Vec<Vec<u32>>, end_of_text: u32) -> (Vec<u32>, Vec<usize>) {
    let (mut tokens, mut ends) = (Vec::new(), Vec::new());
    for text in texts {
        tokens.extend(text);
        tokens.push(end_of_text);
        ends.push(tokens.len());
    }
    (tokens, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_texts_joined_and_the_rest_is_dropped() {
        let texts = ["abc", "", "de"].map(String::from);
        let tokenizer = Tokenizer::train(&[], 257).unwrap();
        let end = tokenizer.end_of_text().unwrap();
        let id = |letter: &str| tokenizer.encode(letter).unwrap()[0];
        let blocks = Samples::joined(&texts, &tokenizer, 4).unwrap();
        assert_eq!(blocks.lengths(), [4, 4]);
        assert_eq!(blocks.get(0).unwrap().tokens.as_ref(), [id("a"), id("b"), id("c"), end]);
        assert_eq!(blocks.get(1).unwrap().tokens.as_ref(), [end, id("d"), id("e"), end]);
        assert_eq!(Samples::joined(&texts, &tokenizer, 5).unwrap().lengths(), [5]);
        let message = Samples::blocks(vec![1, 2, 3], 4).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("has 3 tokens, less than one sequence of 4"), "{message}");
    }

    #[test]
    fn samples_are_the_same_whenever_they_are_tokenised() {
        let texts: Vec<String> = (1..30).map(|n| "a fox ".repeat(n)).collect();
        let tokenizer = Tokenizer::train(&texts, 260).unwrap();
        let samples = |tokenize| Samples::new(texts.clone(), &tokenizer, 12, tokenize).unwrap();
        let (once, late) = (samples(Tokenize::Once), samples(Tokenize::EveryStep));
        // What plans the batches, and with them their widths and their memory.
        assert_eq!(once.lengths(), late.lengths());
        let (mut longest, mut cut) = (0, 0);
        for (i, length) in once.lengths().into_iter().enumerate() {
            let (a, b) = (once.get(i).unwrap(), late.get(i).unwrap());
            assert_eq!((a.tokens.as_ref(), a.cut), (b.tokens.as_ref(), b.cut));
            assert_eq!(a.tokens.len(), length as usize);
            let whole = tokenizer.encode(&texts[i]).unwrap();
            assert_eq!(a.tokens.len() + a.cut, whole.len() + 1, "with its end-of-text token");
            longest = longest.max(a.tokens.len());
            cut += a.cut;
        }
        assert!(longest == 12 && cut > 0, "{longest} {cut}");
        assert!(Samples::new(Vec::new(), &tokenizer, 12, Tokenize::Once).is_err());
    }
}
