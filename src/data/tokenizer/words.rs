//! [`Words`]: a text's tokens, word by word, where the tokens of a word do not depend on the words beside it. Words that came
//! before are looked up: a text has few that are new.

mod added;
mod bounds;
mod lookup;
mod splits;

use std::ops::Range;
use std::sync::Mutex;

use rayon::prelude::*;
use tokenizers::{ModelWrapper, Tokenizer as Inner};

use self::added::Added;
use self::bounds::bounds;
use self::lookup::Lookup;
use self::splits::Splits;
use crate::common::locked;

/// Longer words are no words: they hardly come again.
const LONGEST: usize = 128;
/// Bytes of a text that one core encodes at once.
const PART: usize = 1 << 18;

/// A token and the bytes of the text that it stands for.
pub type Place = (u32, Range<usize>);

/// See the module.
#[derive(Debug)]
pub struct Words {
    added: Added,
    splits: Splits,
    /// Of words and of their pieces; one for each thread that encodes now.
    lookups: Mutex<Vec<[Lookup; 2]>>,
}

impl Words {
    /// `None` where the tokens of a word may depend on what stands beside it, by what is known of the tokenizer's parts.
    pub fn new(inner: &Inner) -> Option<Self> {
        let ModelWrapper::BPE(model) = inner.get_model() else { return None };
        if model.dropout.is_some_and(|dropout| dropout > 0.0) {
            return None;
        }
        Some(Self { added: Added::new(inner), splits: Splits::new(inner)?, lookups: Mutex::default() })
    }

    /// The tokens of a text, as `inner` makes them of the whole; `None` where it has added tokens that change what is beside
    /// them.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn encode(&self, inner: &Inner, text: &str) -> Option<tokenizers::Result<Vec<Place>>> {
        let mut parts = Vec::new();
        for (range, token) in self.added.splits(text)? {
            match token {
                Some(id) => parts.push((range, Some(id))),
                None => parts.extend(self::parts(text, range).map(|part| (part, None))),
            }
        }
        let encode = |(range, token): (Range<usize>, Option<u32>)| match token {
            Some(id) => Ok(vec![(id, range)]),
            None => self.part(inner, &text[range.clone()], range.start),
        };
        Some(match parts.len() {
            1 => encode(parts.remove(0)),
            _ if text.len() <= PART => {
                let encoded: tokenizers::Result<Vec<_>> = parts.into_iter().map(encode).collect();
                encoded.map(|parts| parts.concat())
            }
            _ => {
                let encoded: tokenizers::Result<Vec<_>> = parts.into_par_iter().map(encode).collect();
                encoded.map(|parts| parts.concat())
            }
        })
    }

    /// The tokens of a part that begins and ends at bounds of words, and `start` bytes into the text.
    fn part(&self, inner: &Inner, part: &str, start: usize) -> tokenizers::Result<Vec<Place>> {
        let [mut words, mut pieces] = locked(&self.lookups).pop().unwrap_or_default();
        let mut places = Vec::with_capacity(part.len() / 4);
        let mut first = 0;
        for bound in bounds(part).chain([part.len()]) {
            let word = &part[first..bound];
            match word.len() {
                0 => continue,
                1..=LONGEST => {
                    let found = words.find(word, || self.word(inner, &mut pieces, word))?;
                    places.extend(found.map(|place| moved(place, start + first)));
                }
                _ => {
                    let found = self.word(inner, &mut pieces, word)?;
                    places.extend(found.into_iter().map(|place| moved(place, start + first)));
                }
            }
            first = bound;
        }
        locked(&self.lookups).push([words, pieces]);
        Ok(places)
    }

    /// The tokens of a word by its pieces.
    fn word(&self, inner: &Inner, pieces: &mut Lookup, word: &str) -> tokenizers::Result<Vec<Place>> {
        if self.splits.composes && !word.is_ascii() {
            return whole(inner, word);
        }
        let mut places = Vec::new();
        for range in self.splits.pieces(word) {
            let piece = &word[range.clone()];
            match piece.len() {
                1..=LONGEST => {
                    let found = pieces.find(piece, || whole(inner, piece))?;
                    places.extend(found.map(|place| moved(place, range.start)));
                }
                _ => places.extend(whole(inner, piece)?.into_iter().map(|place| moved(place, range.start))),
            }
        }
        Ok(places)
    }
}

/// A token with the place of its bytes in a longer text.
fn moved((id, range): Place, by: usize) -> Place {
    (id, range.start + by..range.end + by)
}

/// The tokens of a text, without looking at its words.
///
/// # Errors
/// When the vocabulary cannot express it.
pub fn whole(inner: &Inner, text: &str) -> tokenizers::Result<Vec<Place>> {
    let encoding = inner.encode(text, false)?;
    let places = encoding.get_ids().iter().zip(encoding.get_offsets());
    Ok(places.map(|(id, (start, end))| (*id, *start..*end)).collect())
}

/// Parts of a range of the text, for one core each. They meet at bounds of words.
fn parts(text: &str, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut rest = range;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let far = rest.start + PART;
        let end = match text.get(text.ceil_char_boundary(far.min(rest.end))..rest.end) {
            Some(behind) if far < rest.end => {
                bounds(behind).next().map_or(rest.end, |bound| rest.end - behind.len() + bound)
            }
            _ => rest.end,
        };
        Some(std::mem::replace(&mut rest.start, end)..end)
    })
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
