//! [`Losses`]: adds up the parts of each step's loss that the ranks of a cell report.

use std::collections::BTreeMap;

use crate::train::protocol::StepRecord;

/// The steps that not every rank has reported yet.
pub struct Losses {
    ranks: usize,
    /// By step: what each rank reported.
    parts: BTreeMap<usize, BTreeMap<usize, StepRecord>>,
}

impl Losses {
    pub fn of(ranks: usize) -> Self {
        Self { ranks, parts: BTreeMap::new() }
    }

    /// Takes what a rank reports. Once all have reported a step: the first rank's record, with the sum of the losses and the
    /// memory of the rank with the most.
    pub fn add(&mut self, rank: usize, record: StepRecord) -> Option<StepRecord> {
        let step = record.step;
        let parts = self.parts.entry(step).or_default();
        parts.insert(rank, record);
        if parts.len() < self.ranks {
            return None;
        }
        let parts = self.parts.remove(&step)?;
        // In the order of the ranks, as the row's losses are added up.
        let loss = parts.values().fold(0.0, |sum, part| sum + part.loss);
        let memory_bytes = parts.values().map(|part| part.memory_bytes).max()?;
        let first = parts.into_values().next()?;
        Some(StepRecord { loss, memory_bytes, ..first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_whole_once_all_ranks_have_reported_it() {
        let record = |step, loss, memory_bytes| StepRecord {
            step,
            loss,
            learning_rate: Some(0.1),
            gradient_norm: None,
            tokens: 8,
            seconds: None,
            memory_bytes,
        };
        let mut losses = Losses::of(2);
        assert_eq!(losses.add(1, record(1, 2.0, 300)), None);
        assert_eq!(losses.add(1, record(2, 0.5, 300)), None);
        assert_eq!(losses.add(0, record(1, 1.0, 200)), Some(record(1, 3.0, 300)));
        assert_eq!(losses.add(0, record(2, 0.25, 400)), Some(record(2, 0.75, 400)));
        assert!(losses.parts.is_empty());
    }
}
