//! [`Packed`]: samples joined until a sequence is full (Krell et al. 2021 without their bin packing: the
//! order is random).

use std::sync::Arc;

use super::{Epoch, LastSample, Method, Plan, Rows, shuffled};

pub struct Packed;

impl Method for Packed {
    fn rows(&self) -> Rows {
        Rows::Packed
    }

    fn keys(&self) -> &'static [&'static str] {
        &["last_sample"]
    }

    fn by_length(&self) -> bool {
        true
    }

    /// Without the incomplete last sequence where `drop_last`.
    fn epoch(&self, plan: &Plan, epoch: u64) -> Box<dyn Epoch> {
        Box::new(Sequences {
            lengths: plan.lengths.clone(),
            order: shuffled(plan.lengths.len(), &mut plan.rng(epoch)),
            next: 0,
            capacity: plan.batch_size * plan.max_length,
            last_sample: plan.config.last_sample,
            drop_last: plan.config.drop_last,
            dropped: 0,
        })
    }

    fn largest(&self, plan: &Plan) -> Vec<u32> {
        let capacity = plan.batch_size * plan.max_length;
        let mut used = 0;
        let fits = |i: &u32| {
            let before = used;
            used += plan.lengths[*i as usize] as usize;
            before < capacity
        };
        plan.by_length().into_iter().take_while(fits).collect()
    }
}

struct Sequences {
    lengths: Arc<Vec<u32>>,
    order: Vec<u32>,
    next: usize,
    /// Tokens of a sequence.
    capacity: usize,
    last_sample: LastSample,
    drop_last: bool,
    dropped: usize,
}

impl Iterator for Sequences {
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

impl Epoch for Sequences {
    fn dropped(&self) -> usize {
        self.dropped
    }
}
