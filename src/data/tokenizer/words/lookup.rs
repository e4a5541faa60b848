//! [`Lookup`]: the tokens of the words that came before.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Place;

/// Words that are kept. Frequent ones come early; with their tokens they take less than 10 MB.
const MOST: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Lookup {
    /// The first of a word's tokens in `tokens`, and how many it has.
    words: HashMap<Box<str>, (u32, u16), BuildHasherDefault<Mixed>>,
    /// Each with its bytes in its word.
    tokens: Vec<(u32, u8, u8)>,
    /// How many of them belong to words that are kept.
    kept: usize,
}

impl Lookup {
    /// The tokens of a word of less than 256 bytes; `encode` makes them if it is new.
    pub fn find(
        &mut self,
        word: &str,
        encode: impl FnOnce() -> tokenizers::Result<Vec<Place>>,
    ) -> tokenizers::Result<impl Iterator<Item = Place>> {
        let (first, count) = match self.words.get(word) {
            Some(found) => *found,
            None => self.add(word, encode()?),
        };
        let tokens = &self.tokens[first as usize..][..usize::from(count)];
        Ok(tokens.iter().map(|(id, start, end)| (*id, usize::from(*start)..usize::from(*end))))
    }

    fn add(&mut self, word: &str, places: Vec<Place>) -> (u32, u16) {
        // A word that was not kept may be behind them.
        self.tokens.truncate(self.kept);
        let found = (self.kept as u32, places.len() as u16);
        self.tokens.extend(places.into_iter().map(|(id, range)| (id, range.start as u8, range.end as u8)));
        if self.words.len() < MOST {
            self.words.insert(word.into(), found);
            self.kept = self.tokens.len();
        }
        found
    }
}

/// A quick hash of short texts, eight bytes at a time, as the Rust compiler's own (rustc-hash): words are no attack.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.0 = self.0.wrapping_add(u64::from_le_bytes(word)).wrapping_mul(0xf135_7aea_2e62_a9c5);
            self.0 ^= self.0 >> 29;
        }
    }

    fn finish(&self) -> u64 {
        // The table takes its bits from both ends.
        self.0.rotate_left(26)
    }
}
