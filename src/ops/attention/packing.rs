//! [`Packing`]: which samples of a packed sequence are attended together.
//!
//! A sample sees only itself, so a packed sequence is a batch of short sequences. Samples of like length make a
//! [`Bucket`]: a batch with a row for each sample, filled up to one length. More buckets mean less padding and
//! more launches; the cheapest of all divisions is taken.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Bool, Int, Tensor};

use super::Heads;

/// Samples that are attended as one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Rows of the batch; those beyond its samples are empty.
    pub samples: usize,
    /// Tokens of each row.
    pub length: usize,
    /// Where its places begin among those of all buckets.
    first: usize,
}

/// What a bucket costs on a device.
#[derive(Clone, Copy, Debug)]
pub struct Grain {
    /// Lengths and numbers of samples are rounded up so that the products of a step are mostly of sizes that
    /// an earlier step had.
    length: usize,
    round_samples: bool,
    /// Scores of one head that take as long as a bucket's launches.
    launches: usize,
}

impl Grain {
    /// Launches cost next to nothing, and no size of a product is better than another.
    pub const CPU: Self = Self { length: 8, round_samples: false, launches: 1 << 10 };
    /// A pass over 2^20 fp32 scores of 16 heads, 64 MiB, takes some 20 µs on an H200, as long as the launch
    /// of its product.
    pub const CUDA: Self = Self { length: 64, round_samples: true, launches: 1 << 20 };

    fn samples(&self, count: usize) -> usize {
        match self.round_samples {
            // At most an eighth more.
            true => count.next_multiple_of((count / 8).max(1).next_power_of_two()),
            false => count,
        }
    }
}

/// A packing on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    pub buckets: Vec<Bucket>,
    /// The token at each place of each bucket's rows, or -1.
    pub tokens: Vec<i32>,
}

impl Buckets {
    /// Packs samples of `lengths` tokens, which lie side by side in this order.
    pub fn of(lengths: &[usize], grain: Grain) -> Self {
        let rounded = |length: usize| length.next_multiple_of(grain.length);
        let mut classes: BTreeMap<usize, usize> = BTreeMap::new();
        for length in lengths {
            *classes.entry(rounded(*length)).or_default() += 1;
        }
        let classes: Vec<(usize, usize)> = classes.into_iter().collect();
        let (mut first, mut buckets) = (0, Vec::new());
        for group in cheapest(&classes, grain) {
            let samples = grain.samples(classes[group.clone()].iter().map(|(_, count)| count).sum());
            let length = classes[group.end - 1].0;
            buckets.push(Bucket { samples, length, first });
            first += samples * length;
        }
        let mut tokens = vec![-1; first];
        let mut next: Vec<usize> = buckets.iter().map(|bucket| bucket.first).collect();
        let mut token = 0;
        for length in lengths {
            let of = buckets.partition_point(|bucket| bucket.length < rounded(*length));
            for place in &mut tokens[next[of]..][..*length] {
                *place = token;
                token += 1;
            }
            next[of] += buckets[of].length;
        }
        Self { buckets, tokens }
    }
}

/// The groups of neighbouring classes, each a length and its samples, that cost least.
fn cheapest(classes: &[(usize, usize)], grain: Grain) -> Vec<Range<usize>> {
    // Of the classes before each: the cost and where the last group begins.
    let mut best = vec![(0, 0)];
    for end in 1..=classes.len() {
        let length = classes[end - 1].0;
        let cost = |start: usize| {
            let samples: usize = classes[start..end].iter().map(|(_, count)| count).sum();
            (best[start].0 + grain.launches + samples * length * length, start)
        };
        best.push((0..end).map(cost).min().expect("a class"));
    }
    let mut groups = Vec::new();
    let mut end = classes.len();
    while end > 0 {
        groups.push(best[end].1..end);
        end = best[end].1;
    }
    groups.reverse();
    groups
}

/// A packing whose tokens are on the device.
#[derive(Clone, Debug)]
pub struct Packing {
    buckets: Arc<[Bucket]>,
    tokens: Tensor<1, Int>,
}

impl Packing {
    /// `tokens` holds [`Buckets::tokens`].
    pub fn new(buckets: Vec<Bucket>, tokens: Tensor<1, Int>) -> Self {
        Self { buckets: buckets.into(), tokens }
    }

    /// Each bucket's attention, and where its rows are.
    pub fn parts(&self, heads: Heads) -> impl Iterator<Item = (Heads, Places)> {
        self.buckets.iter().map(move |bucket| {
            let heads = Heads { batch: bucket.samples, sequence: bucket.length, ..heads };
            (heads, Places { tokens: self.tokens.clone(), first: bucket.first })
        })
    }
}

/// The token of each place of a batch: `tokens` from `first` on, -1 for none.
#[derive(Clone, Debug)]
pub struct Places {
    pub tokens: Tensor<1, Int>,
    pub first: usize,
}

impl Places {
    /// The tokens of the first `count` places, 0 for none, and whether each of a row's `columns` is of none.
    pub fn composed(&self, count: usize, columns: usize) -> (Tensor<1, Int>, Tensor<2, Bool>) {
        let tokens = self.tokens.clone().narrow(0, self.first, count);
        let none = tokens.clone().lower_elem(0).reshape([count, 1]).expand([count, columns]);
        (tokens.clamp_min(0), none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_has_one_place_in_a_row_of_its_own_sample() {
        for grain in [Grain::CPU, Grain::CUDA, Grain { launches: 0, ..Grain::CUDA }] {
            let lengths: Vec<usize> = (0..300).map(|i| 1 + i * i % 487).collect();
            let Buckets { buckets, tokens } = Buckets::of(&lengths, grain);
            let mut found = vec![0; lengths.iter().sum()];
            tokens.iter().filter(|token| **token >= 0).for_each(|token| found[*token as usize] += 1);
            assert!(found.iter().all(|times| *times == 1));
            let mut rows = Vec::new();
            for bucket in &buckets {
                assert_eq!(bucket.length % grain.length, 0);
                rows.extend(tokens[bucket.first..].chunks(bucket.length).take(bucket.samples));
            }
            let mut samples = 0;
            for row in rows {
                let length = row.iter().take_while(|token| **token >= 0).count();
                assert!(row[length..].iter().all(|token| *token == -1));
                assert!(row[..length].windows(2).all(|pair| pair[1] == pair[0] + 1));
                samples += usize::from(length > 0);
            }
            assert_eq!(samples, lengths.len());
        }
    }

    #[test]
    fn buckets_are_as_many_as_pay() {
        let lengths = [[40; 64], [500; 64]].concat();
        // 64 · (512² - 64²) scores are worth many launches.
        let shapes = |lengths: &[usize], grain: Grain| -> Vec<(usize, usize)> {
            let buckets = Buckets::of(lengths, grain).buckets;
            buckets.iter().map(|bucket| (bucket.samples, bucket.length)).collect()
        };
        assert_eq!(shapes(&lengths, Grain::CUDA), [(64, 64), (64, 512)]);
        // 2 · (512² - 64²) are not.
        assert_eq!(shapes(&[40, 500, 40, 500], Grain::CUDA), [(4, 512)]);
        assert_eq!(shapes(&[40, 500, 40, 500], Grain::CPU), [(2, 40), (2, 504)]);
        // 100 samples are rounded to 112, an eighth of 100 being 12.
        assert_eq!(shapes(&[10; 100], Grain::CUDA), [(112, 64)]);
        assert!(shapes(&[], Grain::CUDA).is_empty());
    }
}
