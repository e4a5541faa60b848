//! [`Samples`]: the documents or paragraphs of a corpus one by one, each cut to a largest length.

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
            // The lengths alone are kept: they tell how large a batch can be.
            Tokenize::EveryStep => Content::Texts {
                lengths: encoded.iter().map(|text| text.len() + 1).collect(),
                texts,
                tokenizer: Box::new(tokenizer.clone()),
            },
            Tokenize::Once => {
                let (mut tokens, mut ends) = (Vec::new(), Vec::new());
                for text in encoded {
                    tokens.extend(text);
                    tokens.push(end_of_text);
                    ends.push(tokens.len());
                }
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
        let mut tokens: Cow<[u32]> = match &self.content {
            Content::Tokens { tokens, ends } => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                (&tokens[start..ends[index]]).into()
            }
            Content::Texts { texts, tokenizer, .. } => {
                let mut tokens = tokenizer.encode(&texts[index])?;
                tokens.push(self.end_of_text);
                tokens.into()
            }
        };
        let cut = tokens.len().saturating_sub(self.max_length);
        if cut > 0 {
            tokens = match tokens {
                Cow::Borrowed(tokens) => (&tokens[..self.max_length]).into(),
                Cow::Owned(tokens) => tokens[..self.max_length].to_vec().into(),
            };
        }
        Ok(Sample { tokens, cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
