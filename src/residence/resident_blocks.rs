//! [`ResidentBlocks`]: how many blocks stay on the device while others move, and which.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::keys::values::{MAX_LAYERS, Values};

/// `offload.resident_blocks = 4`, or `"auto"`: as many as fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentBlocks {
    Count(usize),
    Auto,
}

const AUTO: &str = "auto";

impl ResidentBlocks {
    pub const VALUES: Values = Values::WholeOr { least: 0, most: MAX_LAYERS, words: &[AUTO] };

    /// The number of resident blocks of `layers`; `"auto"` without a limit means all.
    pub fn count(self, layers: usize) -> usize {
        match self {
            Self::Count(count) => count.min(layers),
            Self::Auto => layers,
        }
    }

    /// By block, whether it stays: the first, and then evenly over the network, ⌊k · layers / count⌋. A resident block gives
    /// the copies of its moving neighbours the time of one more computation. Side by side resident blocks would leave the
    /// bus idle during their turns, since all slots are full. The first block hides the copy of the next one after an
    /// update, and the last gradients' copy to the host.
    pub fn places(self, layers: usize) -> Vec<bool> {
        let count = self.count(layers);
        let mut stays = vec![false; layers];
        (0..count).for_each(|k| stays[k * layers / count] = true);
        stays
    }
}

impl Default for ResidentBlocks {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl Serialize for ResidentBlocks {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => s.serialize_u64(*count as u64),
            Self::Auto => s.serialize_str(AUTO),
        }
    }
}

impl<'de> Deserialize<'de> for ResidentBlocks {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = ResidentBlocks;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a whole number of blocks, or \"{AUTO}\"")
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<ResidentBlocks, E> {
                let count = usize::try_from(n).ok().filter(|_| n <= MAX_LAYERS);
                count.map(ResidentBlocks::Count).ok_or_else(|| {
                    E::custom(format!("must be a number of blocks from 0 to {MAX_LAYERS}, not {n}"))
                })
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<ResidentBlocks, E> {
                self.visit_i64(i64::try_from(n).unwrap_or(i64::MAX))
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<ResidentBlocks, E> {
                match word {
                    AUTO => Ok(ResidentBlocks::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        d.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_blocks_lie_evenly_and_the_first_is_one() {
        let places = |count: usize, layers: usize| -> Vec<usize> {
            let stays = ResidentBlocks::Count(count).places(layers);
            (0..layers).filter(|block| stays[*block]).collect()
        };
        assert!(places(0, 5).is_empty());
        assert_eq!(places(2, 5), [0, 2]);
        assert_eq!(places(4, 28), [0, 7, 14, 21]);
        assert_eq!(places(3, 4), [0, 1, 2]);
        assert_eq!(places(5, 5), [0, 1, 2, 3, 4]);
        assert_eq!(ResidentBlocks::Auto.places(3), [true; 3]);
    }
}
