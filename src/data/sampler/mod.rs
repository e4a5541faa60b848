//! Samplers: which samples make up each batch of an epoch.
//!
//! The order of an epoch depends on the seed and the number of the epoch alone, so that a run which
//! resumes at a [`Position`] sees the batches it would have seen. Every sample is in exactly one batch of
//! an epoch, except those that a sampler counts as dropped.

mod balanced;
mod config;
mod packed;
mod shuffled;

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::Position;
pub use balanced::{Balanced, BalancedBatchSampler};
pub use config::{Sampler, SamplerConfig};
pub use packed::{LastSample, Packed};
pub use shuffled::{Padded, Standard};

/// Packed batches that a device prepares for.
const MOST_PACKED: usize = 8;

/// How a sampler makes batches.
pub trait Batching {
    /// The batches of an epoch whose random numbers are those of `rng`.
    fn epoch(&self, plan: &Plan, rng: ChaCha8Rng) -> Box<dyn Epoch>;

    /// What a batch becomes.
    fn rows(&self) -> Rows;

    /// Whether samples are joined: each attends to itself alone.
    fn is_packed(&self) -> bool {
        self.rows() == Rows::Joined
    }

    /// Whether it needs the lengths of all samples before it draws.
    fn needs_lengths(&self) -> bool {
        false
    }

    /// The largest batch that it may draw; `sorted`: all samples, the longest first.
    fn largest(&self, plan: &Plan, sorted: &[u32]) -> Vec<u32> {
        sorted[..plan.batch_size.min(sorted.len())].to_vec()
    }
}

/// What the samples of a batch become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// A row each, filled up to `train.seq_len` tokens.
    Full,
    /// A row each, filled up to the longest of the batch.
    Longest,
    /// One row of `train.batch_size` · `train.seq_len` tokens.
    Joined,
}

/// The batches of one epoch, as numbers of samples.
pub trait Epoch: Iterator<Item = Vec<u32>> + Send {
    /// Samples left out so far.
    fn dropped(&self) -> usize;
}

/// One batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    pub samples: Vec<u32>,
    /// Samples of the epoch that no batch has, counted at the batch before or after them.
    pub dropped: usize,
    /// Whether the epoch ends with it.
    pub last: bool,
}

/// What decides the batches.
#[derive(Clone, Debug)]
pub struct Plan {
    pub config: SamplerConfig,
    /// Of every sample, in tokens.
    pub lengths: Arc<Vec<u32>>,
    pub batch_size: usize,
    /// Tokens of a sample at most.
    pub max_length: usize,
    pub seed: u64,
}

impl Plan {
    /// The batches of an epoch in their order.
    pub fn epoch(&self, epoch: u64) -> Box<dyn Epoch> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(epoch);
        self.config.sampler.epoch(self, rng)
    }

    /// The largest batch that the epochs may have: a measurement of memory needs it.
    pub fn largest(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> = (0..self.lengths.len() as u32).collect();
        sorted.sort_by_key(|&i| std::cmp::Reverse(self.lengths[i as usize]));
        self.config.sampler.largest(self, &sorted)
    }

    /// Batches of the first epoch whose sizes are not those of the [`largest`](Self::largest), for a device to
    /// prepare for: one for each other number of tokens in a row, which `width` tells, the widest first. Packed
    /// batches are all of one width and differ in their samples; of these the first few.
    pub fn others(&self, width: impl Fn(&[u32]) -> usize) -> Vec<Vec<u32>> {
        if self.config.sampler.is_packed() {
            return self.epoch(0).take(MOST_PACKED).collect();
        }
        let mut of_width = std::collections::BTreeMap::new();
        for samples in self.epoch(0) {
            let batch: &mut Vec<u32> = of_width.entry(width(&samples)).or_default();
            if samples.len() > batch.len() {
                *batch = samples;
            }
        }
        of_width.remove(&width(&self.largest()));
        of_width.into_values().rev().collect()
    }
}

/// Batches without end, epoch after epoch.
pub struct Draws {
    plan: Plan,
    /// Of the draw that is next.
    position: Position,
    epoch: Box<dyn Epoch>,
    /// Drawn already, to know whether it is the last.
    upcoming: Option<Vec<u32>>,
    dropped: usize,
}

impl Draws {
    /// From `start` on, the same ones that an uninterrupted run would see.
    pub fn new(plan: Plan, start: Position) -> Self {
        let epoch = plan.epoch(start.epoch);
        let position = Position { epoch: start.epoch, index: 0 };
        let mut draws = Self { plan, position, epoch, upcoming: None, dropped: 0 };
        draws.upcoming = draws.epoch.next();
        for _ in 0..start.index {
            draws.next();
        }
        draws
    }

    /// Where the next draw is; [`Draws::new`] resumes from it.
    pub fn position(&self) -> Position {
        self.position
    }

    fn begin(&mut self, epoch: u64) {
        self.position = Position { epoch, index: 0 };
        self.epoch = self.plan.epoch(epoch);
        self.dropped = 0;
        self.upcoming = self.epoch.next();
    }
}

impl Iterator for Draws {
    type Item = Draw;

    /// `None` only when no epoch has a batch.
    fn next(&mut self) -> Option<Draw> {
        let samples = self.upcoming.take()?;
        self.upcoming = self.epoch.next();
        let dropped = self.epoch.dropped();
        let draw = Draw { samples, dropped: dropped - self.dropped, last: self.upcoming.is_none() };
        self.dropped = dropped;
        self.position.index += 1;
        if draw.last {
            self.begin(self.position.epoch + 1);
        }
        Some(draw)
    }
}

#[cfg(test)]
mod tests;
