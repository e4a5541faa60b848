//! [`Card`]: NVIDIA's cards by the figures of their data sheets, `cards.toml`, and the names that people have for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use itertools::Itertools;
use serde::Deserialize;

use super::Capability;
use crate::common::Compute;

/// A kind of card.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    pub name: String,
    also: String,
    capability: String,
    memory: u64,
    bandwidth: f64,
    bus: (i32, u32),
    slices: Option<u64>,
    pub products: Products,
    measured: Option<Measured>,
    pub source: String,
}

/// Rates of large products as they were measured, TFLOP/s.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    fp32: Option<f64>,
    tf32: Option<f64>,
    fp16: Option<f64>,
    bf16: Option<f64>,
}

impl Measured {
    fn rate(&self, compute: Compute) -> Option<f64> {
        let tera = match compute {
            Compute::Fp32 => self.fp32,
            Compute::Tf32 => self.tf32,
            Compute::Bf16 => self.bf16,
            Compute::Fp16 => self.fp16,
        };
        tera.map(|tera| tera * 1e12)
    }
}

/// Dense matrix products, TFLOP/s, and of int8 TOP/s.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Products {
    pub fp32: f64,
    pub tf32: Option<f64>,
    pub fp16: Option<f64>,
    pub bf16: Option<f64>,
    pub int8: Option<f64>,
    pub fp8: Option<f64>,
}

/// A part of a card that MIG makes: shares of its multiprocessors, and of its memory with the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    pub products: f64,
    pub memory: f64,
}

impl Slice {
    pub const WHOLE: Self = Self { products: 1.0, memory: 1.0 };
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cards: Vec<Card>,
    sources: BTreeMap<String, String>,
}

static FILE: LazyLock<File> =
    LazyLock::new(|| toml::from_str(include_str!("cards.toml")).expect("a test reads the file"));

/// Words of names that tell no cards apart.
const FILLERS: [&str; 6] = ["nvidia", "geforce", "tesla", "gb", "gib", "generation"];

/// The words of a name that tell cards apart: `NVIDIA GeForce RTX 4060Ti` has `4060` and `ti`.
fn words(name: &str) -> BTreeSet<String> {
    let name = name.to_lowercase().replace("rtx", " ").replace("gtx", " ");
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let all = parts.flat_map(|part| {
        // A letter after a digit begins another word.
        let ends = part
            .as_bytes()
            .windows(2)
            .positions(|pair| pair[0].is_ascii_digit() && !pair[1].is_ascii_digit());
        let cuts: Vec<usize> = [0].into_iter().chain(ends.map(|end| end + 1)).chain([part.len()]).collect();
        cuts.into_iter().tuple_windows().map(|(from, to)| &part[from..to])
    });
    all.filter(|word| !word.is_empty() && !FILLERS.contains(word)).map(String::from).collect()
}

impl Card {
    /// All of them.
    pub fn all() -> &'static [Self] {
        &FILE.cards
    }

    /// The documents that figures are from, by the names that cards have for them.
    pub fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
        FILE.sources.iter().map(|(name, url)| (name.as_str(), url.as_str()))
    }

    /// The card that a name means: it may leave out the size of the memory, and have other words of the card.
    ///
    /// # Errors
    /// When there is none, or several; those that are near.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let written = words(name);
        let lacks = |card: &&Card| words(&card.name).difference(&written).count();
        let is_meant = |card: &&Card| {
            let own = words(&card.name);
            let is_size = |word: &String| word.parse::<u32>().is_ok_and(|size| size < 1000);
            written.is_subset(&(&own | &words(&card.also))) && own.difference(&written).all(is_size)
        };
        match Self::all().iter().filter(is_meant).min_set_by_key(lacks)[..] {
            [only] => Ok(only),
            [] => Err(format!("no card \"{}\" is known; near are {}", name.trim(), names(&nearest(name)))),
            ref several => {
                Err(format!("\"{}\" is more than one card; write one of {}", name.trim(), names(several)))
            }
        }
    }

    pub fn capability(&self) -> Capability {
        self.capability.parse().expect("a test reads all")
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> u64 {
        self.memory << 20
    }

    /// Bytes per second of its memory.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth * 1e9
    }

    /// Bytes per second that its lanes of PCI Express carry each way: 8 GT/s in generation 3, 128 bits of 130, and twice as
    /// many in each later one.
    pub fn bus(&self) -> f64 {
        let (generation, lanes) = self.bus;
        f64::from(lanes) * 2f64.powi(generation - 3) * 8e9 / 8.0 * 128.0 / 130.0
    }

    /// Operations per second of dense products; `None` where it has none of the type.
    pub fn product(&self, compute: Compute) -> Option<f64> {
        let Products { fp32, tf32, fp16, bf16, .. } = self.products;
        let tera = match compute {
            Compute::Fp32 => Some(fp32),
            Compute::Tf32 => tf32,
            Compute::Bf16 => bf16,
            // Without tensor cores they are done in fp32.
            Compute::Fp16 => fp16.or(Some(fp32)),
        };
        tera.map(|tera| tera * 1e12)
    }

    /// Operations per second of large products: as they were measured on such cards, else the share of the data sheet's figure that
    /// cards of its kind reach in the median.
    pub fn reached(&self, compute: Compute) -> Option<f64> {
        let own = self.measured.and_then(|measured| measured.rate(compute));
        own.or_else(|| Some(self.product(compute)? * self.share(compute)?))
    }

    /// The share of the data sheet's figure that measured cards of its kind reach; of a type that nobody measured that of bf16.
    fn share(&self, compute: Compute) -> Option<f64> {
        let alike = Self::all().iter().filter(|card| card.halves_sums() == self.halves_sums());
        let share = |card: &Self| Some(card.measured?.rate(compute)? / card.product(compute)?);
        let shares: Vec<f64> = alike.filter_map(share).sorted_by(f64::total_cmp).collect();
        match (shares.get(shares.len() / 2), compute) {
            (Some(median), _) => Some(*median),
            (None, Compute::Bf16) => None,
            (None, _) => self.share(Compute::Bf16),
        }
    }

    /// Whether its tensor cores work at half of their rate where sums are in fp32, as those of GeForce cards: they are then what
    /// limits a product, and neither power nor memory.
    pub fn halves_sums(&self) -> bool {
        self.products.int8.zip(self.products.fp16).is_some_and(|(int8, fp16)| int8 > 3.0 * fp16)
    }

    /// The next larger card: of those with at least a seventh more memory, which do what this one does and no slower, the one with
    /// the least GiB, and of these the slowest.
    pub fn next(&self) -> Option<&'static Self> {
        let rate = |card: &Self| card.products.bf16.or(card.products.fp16).unwrap_or(card.products.fp32);
        let larger = Self::all().iter().filter(|card| {
            card.memory * 7 >= self.memory * 8
                && card.capability() >= self.capability()
                && rate(card) >= rate(self)
        });
        let size = |card: &Self| (card.memory + 512) >> 10;
        larger.min_by(|a, b| size(a).cmp(&size(b)).then(rate(a).total_cmp(&rate(b))))
    }

    /// The part with so much memory: one of MIG's where it has that size, else the whole card, of which so much may be used.
    /// Seven multiprocessor slices share eight of memory: of two instances of half the memory, one has three.
    pub fn slice(&self, memory: u64) -> Slice {
        let profiles: &[(u64, f64)] = match self.slices {
            Some(7) => &[(8, 1.0 / 7.0), (4, 2.0 / 7.0), (2, 3.0 / 7.0)],
            Some(4) => &[(4, 0.25), (2, 0.5)],
            _ => &[],
        };
        let is_of = |part: u64| (memory as f64 * part as f64 / self.memory() as f64 - 1.0).abs() < 0.05;
        let profile = profiles.iter().find(|(part, _)| is_of(*part));
        profile.map_or(Slice::WHOLE, |(part, products)| Slice {
            products: *products,
            memory: 1.0 / *part as f64,
        })
    }
}

fn names(cards: &[&Card]) -> String {
    cards.iter().map(|card| card.name.as_str()).join(", ")
}

/// The three with the nearest names.
fn nearest(name: &str) -> Vec<&'static Card> {
    let text = |name: &str| words(name).into_iter().join(" ");
    let far = |card: &&Card| {
        let alike = strsim::normalized_damerau_levenshtein(&text(name), &text(&card.name));
        (-1e6 * alike) as i64
    };
    Card::all().iter().sorted_by_key(far).take(3).collect()
}

#[cfg(test)]
#[path = "cards_tests.rs"]
mod tests;
