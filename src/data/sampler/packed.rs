//! [`Packed`]: samples joined until a sequence is full (Krell et al. 2021 without their bin packing: the
//! order is random).

use std::sync::Arc;

use rand::Rng;
use rand::seq::SliceRandom;

use super::{Epoch, LastSample};

pub struct Packed {
    lengths: Arc<Vec<u32>>,
    order: Vec<u32>,
    next: usize,
    /// Tokens of a sequence.
    capacity: usize,
    last_sample: LastSample,
    drop_last: bool,
    dropped: usize,
}

impl Packed {
    /// Without the incomplete last sequence where `drop_last`.
    pub fn new(
        lengths: Arc<Vec<u32>>,
        capacity: usize,
        last_sample: LastSample,
        drop_last: bool,
        rng: &mut impl Rng,
    ) -> Self {
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.shuffle(rng);
        Self { lengths, order, next: 0, capacity, last_sample, drop_last, dropped: 0 }
    }
}

impl Iterator for Packed {
    type Item = Vec<u32>;

    /// With [`LastSample::Cut`] the last sample may reach beyond the sequence's end.
    fn next(&mut self) -> Option<Vec<u32>> {
        let (mut samples, mut used) = (Vec::new(), 0);
        while used < self.capacity && self.next < self.order.len() {
            let sample = self.order[self.next];
            self.next += 1;
            used += self.lengths[sample as usize] as usize;
            if used > self.capacity && self.last_sample == LastSample::Drop {
                self.dropped += 1;
            } else {
                samples.push(sample);
            }
        }
        if used < self.capacity && self.drop_last {
            self.dropped += samples.len();
            samples.clear();
        }
        (!samples.is_empty()).then_some(samples)
    }
}

impl Epoch for Packed {
    fn dropped(&self) -> usize {
        self.dropped
    }
}
