//! Samplers: which samples make up each batch of an epoch.
//!
//! The order of an epoch depends on the seed and the number of the epoch alone, so that a run which
//! resumes at a [`Position`] sees the batches it would have seen. Every sample is in exactly one batch of
//! an epoch, except those that a sampler counts as dropped.

mod balanced;
mod blocks;
mod config;
mod packed;
mod shuffled;

use std::collections::BTreeMap;
use std::iter::FromFn;
use std::sync::Arc;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

pub use balanced::{Balanced, BalancedBatchSampler};
pub use blocks::Blocks;
pub use config::{Sampler, SamplerConfig};
pub use packed::{LastSample, Packed};
use shuffled::Batches;
pub use shuffled::{Padded, Standard};

use super::random_stream;

/// Packed batches that a device prepares for.
const MOST_PACKED: usize = 4;
/// So many epochs without a batch, one after the other, say that there is none.
const MOST_EMPTY: u64 = 100;

/// What the rows of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One sample each, of `train.seq_len` tokens with its padding.
    Full,
    /// One sample each, as long as the longest of the batch.
    Longest,
    /// One row of all samples, one after the other.
    Packed,
}

/// What sets one sampler apart from the others.
pub trait Method {
    /// What the rows of its batches are.
    fn rows(&self) -> Rows;

    fn is_packed(&self) -> bool {
        self.rows() == Rows::Packed
    }

    /// Whether documents or paragraphs stay samples: an epoch is one pass over them.
    fn keeps_samples(&self) -> bool {
        true
    }

    /// Whether it draws samples by their lengths.
    fn by_length(&self) -> bool {
        false
    }

    /// The batches of an epoch in their order; where it does not say, of random samples.
    fn epoch(&self, plan: &SamplingPlan, epoch: u64) -> Box<dyn Epoch> {
        Box::new(Batches::of(plan, epoch))
    }

    /// The largest batch that an epoch may have.
    fn largest(&self, plan: &SamplingPlan) -> Vec<u32> {
        let mut longest = plan.by_length();
        longest.truncate(plan.batch_size);
        longest
    }
}

/// The batches of one epoch, as numbers of samples.
pub trait Epoch: Iterator<Item = Vec<u32>> + Send {
    /// Samples left out so far.
    fn dropped(&self) -> usize {
        0
    }
}

impl<F: FnMut() -> Option<Vec<u32>> + Send> Epoch for FromFn<F> {}

/// How far training has come: the next batch is number `index` of the epoch's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    pub epoch: u64,
    pub index: usize,
}

impl Position {
    pub fn of_epoch(epoch: u64) -> Self {
        Self { epoch, index: 0 }
    }

    /// Whether the batch is the first of its epoch.
    pub fn begins_epoch(self) -> bool {
        self.index == 0
    }
}

/// One batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    pub samples: Vec<u32>,
    /// Samples of the epoch that no batch has, counted at the batch before or after them.
    pub dropped: usize,
    /// Of the batch behind it.
    pub next: Position,
}

/// What decides the batches.
#[derive(Clone, Debug)]
pub struct SamplingPlan {
    pub config: SamplerConfig,
    /// Of every sample, in tokens.
    pub lengths: Arc<Vec<u32>>,
    pub batch_size: usize,
    /// Tokens of a sample at most.
    pub max_length: usize,
    pub seed: u64,
}

/// Numbers below `count` in random order.
fn shuffled(count: usize, rng: &mut impl Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.shuffle(rng);
    order
}

impl SamplingPlan {
    fn rng(&self, epoch: u64) -> ChaCha8Rng {
        random_stream(self.seed, epoch)
    }

    /// All samples, the longest first.
    fn by_length(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> = (0..self.lengths.len() as u32).collect();
        sorted.sort_by_key(|&i| std::cmp::Reverse(self.lengths[i as usize]));
        sorted
    }

    /// The batches of an epoch in their order.
    pub fn epoch(&self, epoch: u64) -> Box<dyn Epoch> {
        self.config.sampler.epoch(self, epoch)
    }

    /// Steps of so many batches in passes over all samples. The last step of a pass may have fewer batches; where text is
    /// joined, passes follow one another without a gap, and the last step goes on into the next.
    pub fn steps(&self, epochs: usize, accumulation_steps: usize) -> usize {
        if !self.config.sampler.keeps_samples() {
            return (epochs * self.lengths.len()).div_ceil(self.batch_size * accumulation_steps);
        }
        let steps = |epoch| self.epoch(epoch).count().div_ceil(accumulation_steps);
        (0..epochs as u64).map(steps).sum()
    }

    /// The largest batch that the epochs may have: a measurement of memory needs it.
    pub fn largest(&self) -> Vec<u32> {
        self.config.sampler.largest(self)
    }

    /// Tokens of a row of a batch of these samples.
    pub fn width(&self, samples: &[u32]) -> usize {
        let longest = samples.iter().map(|i| self.lengths[*i as usize]).max();
        self.config.width(longest.unwrap_or(0) as usize, self.batch_size, self.max_length)
    }

    /// Batches of the first epoch whose sizes are not those of the [`largest`](Self::largest), for a device to
    /// prepare for: one for each other number of tokens in a row, the widest first. Packed batches are all of
    /// one width and differ in their samples; of these the first few.
    pub fn others(&self) -> Vec<Vec<u32>> {
        match self.config.sampler.rows() {
            Rows::Full => Vec::new(),
            Rows::Packed => self.epoch(0).take(MOST_PACKED).collect(),
            Rows::Longest => {
                let mut of_width = BTreeMap::new();
                for samples in self.epoch(0) {
                    let batch: &mut Vec<u32> = of_width.entry(self.width(&samples)).or_default();
                    if samples.len() > batch.len() {
                        *batch = samples;
                    }
                }
                of_width.remove(&self.width(&self.largest()));
                of_width.into_values().rev().collect()
            }
        }
    }
}

/// Batches without end, epoch after epoch. Where short batches are left out, an epoch may have none: the next one that
/// has follows.
pub struct Draws {
    plan: SamplingPlan,
    epoch: Box<dyn Epoch>,
    /// Of the batch to come, which is drawn already, to know whether the epoch ends before it.
    next: Position,
    upcoming: Option<Vec<u32>>,
    /// Samples that the epoch's batches so far counted as dropped, and those of epochs passed over.
    counted: usize,
    passed_over: usize,
    /// Epochs from this one on have other samples.
    end: u64,
}

impl Draws {
    /// From `start` on, the same ones that an uninterrupted run would see.
    pub fn new(plan: SamplingPlan, start: Position) -> Self {
        Self::until(u64::MAX, plan, start)
    }

    /// The same, of the epoch of `start` alone.
    pub fn of_epoch(plan: SamplingPlan, start: Position) -> Self {
        Self::until(start.epoch + 1, plan, start)
    }

    fn until(end: u64, plan: SamplingPlan, start: Position) -> Self {
        let (epoch, next) = (Box::new(std::iter::from_fn(|| None)), Position::default());
        let mut draws = Self { plan, epoch, next, upcoming: None, counted: 0, passed_over: 0, end };
        draws.begin(start.epoch);
        draws.by_ref().take(start.index).for_each(drop);
        draws
    }

    /// Samples of epochs without a batch that no batch has counted as dropped.
    pub fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Begins the first epoch from this one on that has a batch.
    fn begin(&mut self, first: u64) {
        self.next = Position::of_epoch(first);
        for number in first..self.end.min(first + MOST_EMPTY) {
            (self.epoch, self.next, self.counted) = (self.plan.epoch(number), Position::of_epoch(number), 0);
            self.upcoming = self.epoch.next();
            if self.upcoming.is_some() {
                return;
            }
            self.passed_over += self.epoch.dropped();
        }
    }
}

impl Iterator for Draws {
    type Item = Draw;

    /// `None` behind the only epoch, and when [`MOST_EMPTY`] epochs have no batch.
    fn next(&mut self) -> Option<Draw> {
        let samples = self.upcoming.take()?;
        self.upcoming = self.epoch.next();
        let mut dropped = self.epoch.dropped() - self.counted;
        self.counted += dropped;
        self.next.index += 1;
        if self.upcoming.is_none() {
            self.begin(self.next.epoch + 1);
        }
        dropped += std::mem::take(&mut self.passed_over);
        Some(Draw { samples, dropped, next: self.next })
    }
}

#[cfg(test)]
mod tests;
