//! [`Balanced`]: batches of samples of similar length.
//!
//! Samples go into buckets of k + 1 lengths each, whose bounds move from epoch to epoch. Every batch is drawn from one
//! bucket, so its longest sample is at most k longer than its shortest; the last batch of a bucket may be short. The
//! bucket of a batch is random, and so are its samples in it. Construction looks at each sample once. The cost of a draw
//! does not depend on the size of the data set.

use super::{Epoch, Method, Rows, SamplingPlan};
use crate::keys::section::section;
use crate::keys::values::COUNT_OR_ZERO;
use crate::keys::{Key, Section};
use rand::Rng;

section! {
    /// As standard, but the lengths of the samples in a batch differ by at most `k`.
    #[derive(Copy, Eq)]
    pub struct Balanced: Section::of("data", "sampler", &["balanced"]) => {
        /// Tokens by which the samples of a batch may differ; 8 is a good start.
        pub k: usize = Key::method(COUNT_OR_ZERO),
    }
}

impl Method for Balanced {
    fn rows(&self) -> Rows {
        Rows::Longest
    }

    fn by_length(&self) -> bool {
        true
    }

    fn epoch(&self, plan: &SamplingPlan, epoch: u64) -> Box<dyn Epoch> {
        let lengths = plan.lengths.iter().copied();
        let (k, drop_last) = (self.k, plan.config.drop_last);
        let mut epoch = BalancedBatchSampler::new(lengths, plan.batch_size, k, drop_last, plan.rng(epoch));
        if plan.config.longest_first {
            epoch.longest_first(&plan.lengths);
        }
        Box::new(epoch)
    }

    fn largest(&self, plan: &SamplingPlan) -> Vec<u32> {
        let sorted = plan.by_length();
        let length = |i: u32| plan.lengths[i as usize] as usize;
        // The samples that are at most k shorter than the first.
        let from = |start: usize| -> Vec<u32> {
            let near = |i: &u32| length(*i) + self.k >= length(sorted[start]);
            sorted[start..].iter().copied().take_while(near).take(plan.batch_size).collect()
        };
        let size = |batch: &Vec<u32>| batch.len() * batch.first().map_or(0, |i| length(*i));
        (0..sorted.len()).map(from).max_by_key(size).unwrap_or_default()
    }
}

/// The batches of an epoch.
pub struct BalancedBatchSampler<R> {
    buckets: Vec<Vec<u32>>,
    /// The bucket of each batch that is still to come.
    batches: Vec<u32>,
    batch_size: usize,
    /// The batch that is next, where it is not left to chance.
    first: Option<Vec<u32>>,
    dropped: usize,
    rng: R,
    operations: u64,
}

impl<R: Rng> BalancedBatchSampler<R> {
    /// Over samples of these lengths. Short batches are left out where `drop_last`.
    pub fn new(
        lengths: impl Iterator<Item = u32>,
        batch_size: usize,
        k: usize,
        drop_last: bool,
        mut rng: R,
    ) -> Self {
        let shift = rng.random_range(0..=k);
        let mut sampler = Self {
            buckets: Vec::new(),
            batches: Vec::new(),
            batch_size,
            first: None,
            dropped: 0,
            rng,
            operations: 1,
        };
        for (sample, length) in lengths.enumerate() {
            let bucket = (length as usize + shift) / (k + 1);
            if bucket >= sampler.buckets.len() {
                sampler.operations += (bucket + 1 - sampler.buckets.len()) as u64;
                sampler.buckets.resize(bucket + 1, Vec::new());
            }
            sampler.buckets[bucket].push(sample as u32);
            sampler.operations += 1;
        }
        for (bucket, samples) in sampler.buckets.iter().enumerate() {
            let (whole, rest) = (samples.len() / batch_size, samples.len() % batch_size);
            let count = if drop_last { whole } else { whole + usize::from(rest > 0) };
            sampler.batches.extend(std::iter::repeat_n(bucket as u32, count));
            sampler.dropped += if drop_last { rest } else { 0 };
            sampler.operations += 1 + count as u64;
        }
        sampler
    }

    /// Puts the batch that takes the most memory before the others: of the bucket whose longest samples
    /// fill the most, and with them.
    pub fn longest_first(&mut self, lengths: &[u32]) {
        let length = |sample: &u32| lengths[*sample as usize];
        let size = |samples: &[u32]| {
            let longest = samples.iter().map(length).max().unwrap_or(0);
            longest as usize * self.batch_size.min(samples.len())
        };
        let largest =
            self.batches.iter().enumerate().max_by_key(|(_, bucket)| size(&self.buckets[**bucket as usize]));
        let Some((place, &bucket)) = largest else { return };
        self.batches.swap_remove(place);
        let samples = &mut self.buckets[bucket as usize];
        samples.sort_by_key(length);
        self.first = Some(samples.split_off(samples.len().saturating_sub(self.batch_size)));
    }

    /// Elements that were read or written so far, to see how work grows with the data set.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Takes one of these at random, in constant time.
    fn take(rng: &mut R, from: &mut Vec<u32>) -> u32 {
        let place = rng.random_range(0..from.len());
        from.swap_remove(place)
    }
}

impl<R: Rng> Iterator for BalancedBatchSampler<R> {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.batches.is_empty() {
            return None;
        }
        let bucket = Self::take(&mut self.rng, &mut self.batches);
        let samples = &mut self.buckets[bucket as usize];
        let count = self.batch_size.min(samples.len());
        self.operations += 1 + count as u64;
        Some((0..count).map(|_| Self::take(&mut self.rng, samples)).collect())
    }
}

impl<R: Rng + Send> Epoch for BalancedBatchSampler<R> {
    fn dropped(&self) -> usize {
        self.dropped
    }
}
