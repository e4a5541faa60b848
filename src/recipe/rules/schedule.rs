//! Rules of `train.schedule` with the length of the run.

use super::Checked;
use crate::parallel::Division;
use crate::recipe::Cell;
use crate::words::Rule;

pub(super) fn check(cell: &Cell) -> Checked {
    // How many steps epochs have follows from the data.
    cell.measure.steps.map_or(Ok(()), |steps| cell.check_warmup(steps))
}

impl Cell {
    /// Refuses a learning rate that only rises in so many measured steps.
    ///
    /// # Errors
    /// The key, and what to change.
    pub fn check_warmup(&self, steps: usize) -> Result<(), Rule> {
        let (warmup, all) = (self.train.schedule.warmup_steps(), self.scheduled_updates(steps));
        Rule::refuse_if(
            warmup >= all,
            &["train.schedule.warmup_steps", "train.schedule"],
            format!(
                "warmup_steps = {warmup} leaves none of this cell's {all} updates for the rest of its schedule"
            ),
            "make warmup_steps smaller, or the run longer: measure.steps or measure.epochs",
        )
    }

    /// Updates that the schedule spans. With a sampler the warm-up trains a network of its own.
    fn scheduled_updates(&self, steps: usize) -> usize {
        let sampled = self.data.sampler().sampler.keeps_samples();
        let warmup = if sampled { 0 } else { self.measure.warmup };
        (warmup + steps) * self.division().as_ref().map_or(1, Division::updates)
    }
}
