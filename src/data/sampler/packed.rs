//! [`Packed`]: samples joined until a sequence is full (Krell et al. 2021 without their bin packing: the
//! order is random).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Epoch, Method, Rows, SamplingPlan, shuffled};
use crate::keys::key::DefaultValue::Word;
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Section};

section! {
    /// Random samples joined into one sequence of `train.batch_size` x `train.seq_len` tokens.
    #[derive(Copy, Default, Eq)]
    pub struct Packed: Section::of("data", "sampler", &["packed"]) => {
        /// What happens to the last sample of a sequence where it does not fit: it is cut, or dropped.
        pub last_sample: LastSample = Key::method(Values::Words(&["cut", "drop"]))
            .default(Word("cut")),
    }
}

/// What becomes of a sample that does not fit whole into a packed sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastSample {
    #[default]
    Cut,
    Drop,
}

impl Method for Packed {
    fn rows(&self) -> Rows {
        Rows::Packed
    }

    fn by_length(&self) -> bool {
        true
    }

    /// Without the incomplete last sequence where `drop_last`.
    fn epoch(&self, plan: &SamplingPlan, epoch: u64) -> Box<dyn Epoch> {
        Box::new(Sequences {
            lengths: plan.lengths.clone(),
            order: shuffled(plan.lengths.len(), &mut plan.rng(epoch)),
            next: 0,
            capacity: plan.batch_size * plan.max_length,
            last_sample: self.last_sample,
            drop_last: plan.config.drop_last,
            dropped: 0,
        })
    }

    fn largest(&self, plan: &SamplingPlan) -> Vec<u32> {
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
