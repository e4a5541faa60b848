//! [`Padded`] and [`Standard`]: batches of random samples, which differ only in how far
//! [`collate`](crate::data::collate) fills them up.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Batching, Epoch, Plan, Rows};
use crate::words::Section;

/// `sampler = "padded"`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Padded {}

/// `sampler = "standard"`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standard {}

impl Padded {
    pub const SECTION: Section = Section::of(
        "data",
        "sampler",
        &["padded"],
        "Random samples, each filled up to `train.seq_len`.",
        &[],
    );
}

impl Standard {
    pub const SECTION: Section = Section::of(
        "data",
        "sampler",
        &["standard"],
        "Random samples, each filled up to the longest of its batch.",
        &[],
    );
}

impl Batching for Padded {
    fn epoch(&self, plan: &Plan, rng: ChaCha8Rng) -> Box<dyn Epoch> {
        Box::new(Shuffled::of(plan, rng))
    }

    fn rows(&self) -> Rows {
        Rows::Full
    }
}

impl Batching for Standard {
    fn epoch(&self, plan: &Plan, rng: ChaCha8Rng) -> Box<dyn Epoch> {
        Box::new(Shuffled::of(plan, rng))
    }

    fn rows(&self) -> Rows {
        Rows::Longest
    }
}

struct Shuffled {
    order: Vec<u32>,
    next: usize,
    batch_size: usize,
    dropped: usize,
}

impl Shuffled {
    fn of(plan: &Plan, mut rng: impl Rng) -> Self {
        let (samples, batch_size) = (plan.lengths.len(), plan.batch_size);
        let mut order: Vec<u32> = (0..samples as u32).collect();
        order.shuffle(&mut rng);
        let dropped = if plan.config.drop_last { samples % batch_size } else { 0 };
        order.truncate(samples - dropped);
        let mut epoch = Self { order, next: 0, batch_size, dropped };
        if plan.config.longest_first {
            epoch.longest_first(&plan.lengths);
        }
        epoch
    }

    /// Puts the batch with the longest sample before the others.
    fn longest_first(&mut self, lengths: &[u32]) {
        let longest = |batch: &[u32]| batch.iter().map(|&i| lengths[i as usize]).max();
        let whole = self.order.chunks_exact(self.batch_size).enumerate();
        if let Some((place, _)) = whole.max_by_key(|(place, batch)| (longest(batch), usize::MAX - place)) {
            for i in 0..self.batch_size {
                self.order.swap(i, place * self.batch_size + i);
            }
        }
    }
}

impl Iterator for Shuffled {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        let batch = self.order[self.next..].chunks(self.batch_size).next()?.to_vec();
        self.next += batch.len();
        Some(batch)
    }
}

impl Epoch for Shuffled {
    fn dropped(&self) -> usize {
        self.dropped
    }
}
