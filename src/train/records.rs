//! [`Records`]: the steps of a cell that are reported while it runs. Nothing waits for a loss: a step is reported once its
//! loss is known, on a GPU one step late.

use std::collections::VecDeque;

use super::protocol::StepRecord;
use crate::measure::Measured;
use crate::parallel::Groups;
use crate::recipe::Cell;

pub(super) struct Records {
    /// Whether this rank reports losses at all.
    wanted: bool,
    /// Whether the meter takes norms, and whether of scaled gradients.
    logged: bool,
    scaled: bool,
    /// Whether the loss of this rank counts: all ranks that divide layers have the same.
    counts: bool,
    learning_rate: Option<f64>,
    /// Steps of a warm-up that trains its own network.
    apart: usize,
    /// Those whose loss is not known yet, the oldest first.
    waiting: VecDeque<StepRecord>,
}

/// A step that has ended, before its loss is known.
pub(super) struct StepEnd {
    /// From 0, warm-up included.
    pub step: usize,
    /// What the schedule made of the learning rate, as a factor.
    pub rate: f64,
    pub seconds: Option<f64>,
    pub tokens: u64,
}

impl Records {
    /// A single process reports every loss; one of several ranks only if the cell is `logged`, since the runner adds up the
    /// parts of all. `apart`: steps of a warm-up that trains its own network.
    pub fn new(cell: &Cell, groups: &Groups, logged: bool, apart: usize) -> Self {
        Self {
            wanted: logged || cell.parallel.is_alone(),
            logged,
            scaled: cell.precision.scaler.is_some(),
            counts: groups.tensor.place() == 0,
            learning_rate: cell.learning_rate(),
            apart,
            // More than ever wait: nothing of them counts as the cell's memory.
            waiting: VecDeque::with_capacity(4),
        }
    }

    /// Notes a step that has ended, unless it trained a network of the warm-up.
    pub fn note(&mut self, ended: &StepEnd) {
        if !self.wanted || ended.step < self.apart {
            return;
        }
        self.waiting.push_back(StepRecord {
            step: ended.step + 1 - self.apart,
            loss: 0.0,
            learning_rate: self.learning_rate.map(|lr| lr * ended.rate),
            gradient_norm: None,
            tokens: ended.tokens,
            seconds: ended.seconds,
            memory_bytes: 0,
        });
    }

    /// Whether the loss of a step is not known yet.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The oldest step that has not been reported, if its loss is among what is known.
    pub fn take(&mut self, known: &Measured) -> Option<StepRecord> {
        let place = self.waiting.front()?.step - 1 + self.apart;
        let loss = *known.losses.get(place)?;
        let record = self.waiting.pop_front()?;
        Some(StepRecord {
            loss: if self.counts { loss } else { 0.0 },
            gradient_norm: self.norm(known, place),
            memory_bytes: known.memory.live_peak,
            ..record
        })
    }

    /// The norm of a step's gradients, from the sum of the squares that the step noted behind the scaler's report, and the
    /// scale that they were multiplied by.
    fn norm(&self, known: &Measured, place: usize) -> Option<f64> {
        // States that were saved without a log have steps without numbers.
        let place = (place + known.noted.len()).checked_sub(known.losses.len())?;
        let numbers = known.noted.get(place).filter(|_| self.logged)?;
        let (squares, scale) = match (numbers[..].as_ref(), self.scaled) {
            ([.., squares, scale], true) => (*squares, *scale),
            ([squares], false) => (*squares, 1.0),
            _ => return None,
        };
        Some(f64::from(squares).sqrt() / f64::from(scale)).filter(|norm| norm.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Recipe, Source};

    fn records(more: &str, logged: bool, apart: usize) -> Records {
        let text = format!(
            "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
             num_hidden_layers = 1\nnum_attention_heads = 2\n[train]\nbatch_size = 1\nseq_len = 4\n\
             optimizer = {{ kind = \"sgd\", lr = 0.5 }}\n{more}"
        );
        let cell = Recipe::parse(&Source { path: "r.toml".into(), text }).expect("a recipe").cells.remove(0);
        Records::new(&cell, &Groups::alone(), logged, apart)
    }

    fn ended(step: usize) -> StepEnd {
        StepEnd { step, rate: 0.25, seconds: Some(2.0), tokens: 4 }
    }

    /// On a GPU: when a step ends, the loss of the step before it is known.
    #[test]
    fn a_step_is_reported_once_its_loss_is_known() {
        let mut records = records("", false, 2);
        let mut known = Measured { losses: vec![9.0, 8.0], ..Measured::default() };
        records.note(&ended(1));
        assert!(!records.is_waiting(), "the warm-up trained a network of its own");
        records.note(&ended(2));
        assert_eq!(records.take(&known), None);
        known.losses.push(3.5);
        known.memory.live_peak = 1000;
        records.note(&ended(3));
        let record = records.take(&known).expect("its loss is known");
        assert_eq!((record.step, record.loss, record.learning_rate), (1, 3.5, Some(0.125)));
        assert_eq!((record.memory_bytes, record.tokens_per_second()), (1000, Some(2.0)));
        assert_eq!((records.take(&known), records.is_waiting()), (None, true));
    }

    #[test]
    fn norms_are_those_of_gradients_that_are_not_scaled() {
        let norm = |more: &str, logged: bool, numbers: &[f32]| {
            let mut records = records(more, logged, 0);
            records.note(&ended(3));
            // The first steps are those of a state that was saved without a log.
            let known =
                Measured { losses: vec![1.0; 4], noted: vec![numbers.to_vec()], ..Measured::default() };
            records.take(&known).expect("its loss is known").gradient_norm
        };
        let scaler = "[precision]\ncompute = \"fp16\"\nautocast = true\nscaler = { kind = \"dynamic\" }\n";
        assert_eq!(norm("clip_norm = 1.0\n", true, &[9.0]), Some(3.0));
        assert_eq!(norm(scaler, true, &[1.0, 16.0, 576.0, 8.0]), Some(3.0));
        assert_eq!(norm(scaler, true, &[0.0, 4.0, f32::INFINITY, 8.0]), None);
        assert_eq!(norm(scaler, false, &[1.0, 16.0]), None);
    }
}
