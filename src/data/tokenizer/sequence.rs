//! Sequences: a text with the special tokens around it, a prompt and what follows it.

use tokenizers::{Encoding, PostProcessor, PostProcessorWrapper, Token};

use super::{Tokenizer, unreadable};
use crate::data::DataError;

impl Tokenizer {
    /// The tokens of a text at the beginning of a sequence that goes on, as a prompt does: with the special tokens that begin
    /// a sequence, and without those that end one.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn begin(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.within_rows([&self.before[..], &self.encode(text)?].concat())
    }

    /// The tokens of a sequence that goes on, and how many of them are given: those before `completion`. Both texts are
    /// tokenised as one, so that nothing stands between them; a token that reaches from the prompt into the completion is not
    /// given.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn prompted(&self, prompt: &str, completion: &str) -> Result<(Vec<u32>, usize), DataError> {
        if prompt.is_empty() {
            return Ok((self.begin(completion)?, 0));
        }
        let (tokens, given) = self.divided(prompt, completion)?;
        Ok((self.within_rows([&self.before[..], &tokens].concat())?, self.before.len() + given))
    }

    /// The same without the special tokens that begin a sequence.
    pub fn divided(&self, prompt: &str, completion: &str) -> Result<(Vec<u32>, usize), DataError> {
        let (tokens, places) = self.encode_offsets(&[prompt, completion].concat())?;
        let given = places.iter().take_while(|(_, end)| *end <= prompt.len()).count();
        Ok((tokens, given))
    }

    /// As [`prompted`](Self::prompted), with the end: `end`, behind what the tokenizer itself puts there.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn sequence(&self, prompt: &str, completion: &str, end: u32) -> Result<(Vec<u32>, usize), DataError> {
        let (mut sequence, given) = self.prompted(prompt, completion)?;
        sequence.extend(&self.behind);
        // The tokenizer may end a sequence itself.
        if !self.behind.last().is_some_and(|last| *last == end || self.ends.contains(last)) {
            sequence.push(end);
        }
        Ok((self.within_rows(sequence)?, given))
    }

    /// What new tokens add to the text of those before them: a decoder may leave out the space that a text begins with, but
    /// not one within.
    pub fn continuation(&self, before: &[u32], new: &[u32]) -> String {
        let whole = self.decode(&[before, new].concat());
        whole.strip_prefix(&self.decode(before)).map_or_else(|| self.decode(new), str::to_string)
    }
}

/// The special tokens that a post-processor puts before a text, and behind it.
pub(super) fn added_by(processor: Option<&PostProcessorWrapper>) -> Result<[Vec<u32>; 2], DataError> {
    let Some(processor) = processor else { return Ok([Vec::new(), Vec::new()]) };
    let text = Encoding::from_tokens(vec![Token::new(0, "a".into(), (0, 1))], 0);
    let whole = processor.process(text, None, true).map_err(unreadable)?;
    let (ids, special) = (whole.get_ids(), whole.get_special_tokens_mask());
    let place = special.iter().position(|special| *special == 0);
    let place = place.ok_or_else(|| DataError::new("the tokenizer's post-processor leaves out the text"))?;
    Ok([ids[..place].to_vec(), ids[place + 1..].to_vec()])
}
