//! [`Padded`] and [`Standard`]: batches of random samples, which differ only in how far
//! [`collate`](crate::data::collate) fills them up.

use super::{Epoch, Method, Rows, SamplingPlan, shuffled};
use crate::keys::Section;
use crate::keys::section::section;

section! {
    /// Random samples, each filled up to `train.seq_len`.
    #[derive(Copy, Eq)]
    pub struct Padded: Section::of("data", "sampler", &["padded"]) => {}
}

section! {
    /// Random samples, each filled up to the longest of its batch.
    #[derive(Copy, Eq)]
    pub struct Standard: Section::of("data", "sampler", &["standard"]) => {}
}

impl Method for Padded {
    fn rows(&self) -> Rows {
        Rows::Full
    }
}

impl Method for Standard {
    fn rows(&self) -> Rows {
        Rows::Longest
    }
}

impl Batches {
    /// Without the incomplete last batch where `drop_last`.
    pub fn of(plan: &SamplingPlan, epoch: u64) -> Self {
        let (samples, batch_size) = (plan.lengths.len(), plan.batch_size);
        let mut order = shuffled(samples, &mut plan.rng(epoch));
        let dropped = if plan.config.drop_last { samples % batch_size } else { 0 };
        order.truncate(samples - dropped);
        if plan.config.longest_first {
            longest_first(&mut order, batch_size, &plan.lengths);
        }
        Self { order, next: 0, batch_size, dropped }
    }
}

/// Puts the batch with the longest sample before the others.
fn longest_first(order: &mut [u32], batch_size: usize, lengths: &[u32]) {
    let longest = |batch: &[u32]| batch.iter().map(|&i| lengths[i as usize]).max();
    let whole = order.chunks_exact(batch_size).enumerate();
    if let Some((place, _)) = whole.max_by_key(|(place, batch)| (longest(batch), usize::MAX - place)) {
        for i in 0..batch_size {
            order.swap(i, place * batch_size + i);
        }
    }
}

pub struct Batches {
    order: Vec<u32>,
    next: usize,
    batch_size: usize,
    dropped: usize,
}

impl Iterator for Batches {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        let batch = self.order[self.next..].chunks(self.batch_size).next()?.to_vec();
        self.next += batch.len();
        Some(batch)
    }
}

impl Epoch for Batches {
    fn dropped(&self) -> usize {
        self.dropped
    }
}
