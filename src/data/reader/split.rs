//! [`Keep`]: which records of a file belong to a split: by seed and share, and no record to two splits.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::data::record::Record;

/// Which side of a split by share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Train,
    HeldOut,
}

/// Keeps the records of one split.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    share: Option<(f64, u64, Side)>,
    /// Of records that another split has.
    elsewhere: HashSet<u64>,
}

impl Keep {
    /// One side of a split by share: the seed and the content of a record decide where it is. So records with equal content
    /// are on the same side, and a record stays there when others are added.
    #[must_use]
    pub fn side(self, share: f64, seed: u64, side: Side) -> Self {
        Self { share: Some((share, seed, side)), ..self }
    }

    /// Without the records that these are.
    pub fn without(records: impl Iterator<Item = Record>) -> Self {
        Self { share: None, elsewhere: records.map(|record| digest(&record)).collect() }
    }

    /// Whether the record is of the split.
    pub fn is_of(&self, record: &Record) -> bool {
        self.share.is_none_or(|(share, seed, side)| {
            // 53 bits, which a float has.
            let place = (mixed(digest(record) ^ mixed(seed)) >> 11) as f64 / (1_u64 << 53) as f64;
            (place < share) == (side == Side::HeldOut)
        })
    }

    /// Whether another split has the record.
    pub fn is_elsewhere(&self, record: &Record) -> bool {
        !self.elsewhere.is_empty() && self.elsewhere.contains(&digest(record))
    }
}

/// Of a record's content.
fn digest(record: &Record) -> u64 {
    let mut hash = Sha256::new();
    match record {
        Record::Text(text) => hash.update(text),
        Record::Pair(pair) => {
            hash.update(b"\x01");
            hash.update((pair.prompt.len() as u64).to_le_bytes());
            hash.update(&pair.prompt);
            hash.update(&pair.completion);
        }
        Record::Chat(chat) => {
            hash.update(b"\x02");
            // A value of a file is one of JSON's.
            hash.update(serde_json::to_vec(&(&chat.messages, &chat.tools)).unwrap_or_default());
        }
        Record::Tokens(tokens) => {
            hash.update(b"\x03");
            tokens.ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
            hash.update(tokens.learned.iter().map(|learned| u8::from(*learned)).collect::<Vec<_>>());
        }
    }
    let hash = hash.finalize();
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
}

/// SplitMix64's finaliser (Steele et al. 2014): each bit of the result depends on all bits.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
