//! [`Shuffled`]: batches of random samples, for `padded` and `standard`, which differ only in how far
//! [`collate`](crate::data::collate) fills them up.

use rand::Rng;
use rand::seq::SliceRandom;

use super::Epoch;

pub struct Shuffled {
    order: Vec<u32>,
    next: usize,
    batch_size: usize,
    dropped: usize,
}

impl Shuffled {
    /// Without the incomplete last batch where `drop_last`.
    pub fn new(samples: usize, batch_size: usize, drop_last: bool, rng: &mut impl Rng) -> Self {
        let mut order: Vec<u32> = (0..samples as u32).collect();
        order.shuffle(rng);
        let dropped = if drop_last { samples % batch_size } else { 0 };
        order.truncate(samples - dropped);
        Self { order, next: 0, batch_size, dropped }
    }

    /// Puts the batch with the longest sample before the others.
    pub fn longest_first(&mut self, lengths: &[u32]) {
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
