//! [`Learned`]: the start and the end of a language model's losses.

use super::prelude::*;
use crate::measure::{Evaluation, Measurement};

/// Fewer steps without an evaluation have no curve.
const FEW_STEPS: usize = 20;
/// The first and the last of so many equal parts of the steps stand for the start and the end.
const PARTS: usize = 20;

/// Losses are cross-entropies in nats a token.
pub struct Learned<'a> {
    /// Of all steps and micro-batches, without padding.
    pub tokens: u64,
    /// Mean training loss of the first 5 % of steps.
    pub train_first: f64,
    /// Mean training loss of the last 5 % of steps.
    pub train_last: f64,
    measurement: &'a Measurement,
}

/// The measurement of a language model that trained to its end.
pub fn trained<'a>(line: &Line<'a>) -> Option<&'a Measurement> {
    let m = line.measured()?;
    let enough = !m.evaluations.is_empty() || m.loss.len() >= FEW_STEPS;
    let learns = line.cell.model.decoder().is_some() && line.cell.train.mode.trains();
    (learns && !m.loss.is_empty() && enough).then_some(m)
}

/// Whether held-out text says what the methods learn. Random weights learn nothing from random tokens.
pub fn is_evaluated(comparison: &Comparison) -> bool {
    let learns = |i: usize| {
        let cell = comparison.lines[i].cell;
        !cell.data.is_random() || cell.model.weights_folder().is_some()
    };
    comparison.having("eval_perplexity").any(learns)
}

/// The training loss that every cell reached: the highest final one. `None` where all cells made as many steps, so that their
/// final losses compare.
pub fn equal_loss(lines: &[Line]) -> Option<f64> {
    let learned: Vec<Learned> = lines.iter().filter_map(Learned::of).collect();
    let steps = |of: &Learned| of.measurement.loss.len();
    let unequal = learned.windows(2).any(|pair| steps(&pair[0]) != steps(&pair[1]));
    learned.iter().map(|of| of.train_last).max_by(f64::total_cmp).filter(|_| unequal)
}

impl<'a> Learned<'a> {
    /// `None` where [`trained`] is.
    pub fn of(line: &Line<'a>) -> Option<Self> {
        let m = trained(line)?;
        let (steps, train) = (m.loss.len(), &line.cell.train);
        let part = steps.div_ceil(PARTS);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let all = (steps * train.tokens() * train.accumulation_steps) as u64;
        let tokens = m.loading.as_ref().map_or(all, |loading| loading.tokens());
        let (train_first, train_last) = (mean(&m.loss[..part]), mean(&m.loss[steps - part..]));
        Some(Self { tokens, train_first, train_last, measurement: m })
    }

    /// Seconds of the run, without evaluation, until the training loss was first as low as this, as a mean over the number of
    /// steps that stand for the end.
    pub fn time_to(&self, loss: f64) -> Option<f64> {
        let m = self.measurement;
        let (losses, part) = (&m.loss, m.loss.len().div_ceil(PARTS));
        let reached =
            losses.windows(part).position(|of| of.iter().sum::<f64>() / part as f64 <= loss)? + part;
        // Warm-up steps are not timed. With a sampler they train another network, and have no losses here.
        let warmup = losses.len() - m.step.seconds.len().min(losses.len());
        let timed: f64 = m.step.seconds.iter().take(reached.saturating_sub(warmup)).sum();
        let all: f64 = m.step.seconds.iter().sum();
        Some(timed * self.seconds() / all)
    }

    /// Of the run, without evaluation; of one without a sampler those of its measured steps.
    pub fn seconds(&self) -> f64 {
        let m = self.measurement;
        let run = m.loading.as_ref().map(|loading| loading.run_seconds).or(m.run_seconds);
        run.unwrap_or_else(|| m.step.seconds.iter().sum())
    }

    /// The evaluation after the last step.
    pub fn end(&self) -> Option<&'a Evaluation> {
        self.measurement.evaluations.last()
    }

    /// The evaluation with the lowest loss, the earliest of equals, where training went on past it.
    pub fn better_than_end(&self) -> Option<&'a Evaluation> {
        let best = self.measurement.evaluations.iter().min_by(|a, b| a.loss.total_cmp(&b.loss))?;
        (best.loss < self.end()?.loss).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Comparison;
    use super::super::testing::{language_recipe, learned_row, recipe, rows};

    #[test]
    fn the_table_by_hand() {
        let recipe = language_recipe("[grid]\n\"train.accumulation_steps\" = [1, 2]\n");
        // 40 steps: two at each end stand for start and end.
        let falling: Vec<f64> = (0..40).map(|step| 6.0 - 0.1 * f64::from(step)).collect();
        let rows = [
            learned_row(&recipe.cells[0], falling.clone(), &[(0, 6.9, 0.0), (20, 2.0, 0.5), (40, 3.0, 0.25)]),
            learned_row(&recipe.cells[1], falling, &[(0, 6.9, 0.0), (20, 4.0, 0.1), (40, 1.0, 0.5)]),
        ];
        let table = Comparison::new(&recipe, &rows).table("learned").expect("a table");
        let size = |n| format!("accumulation steps {n}");
        // 40 steps of 4 x 64 tokens; e^3 = 20.1, e^2 = 7.39, e = 2.72.
        assert_eq!(
            table.rows,
            [
                [
                    size(1).as_str(),
                    "40",
                    "10.2 k",
                    "5.950",
                    "2.150",
                    "3.000",
                    "20.1",
                    "25.0 %",
                    "7.389",
                    "20"
                ],
                [size(2).as_str(), "40", "20.5 k", "5.950", "2.150", "1.000", "2.718", "50.0 %", "–", "–"],
            ]
        );
    }

    #[test]
    fn nothing_is_said_of_what_did_not_train() {
        let few = language_recipe("");
        let row = |losses: usize| [learned_row(&few.cells[0], vec![5.0; losses], &[])];
        assert!(Comparison::new(&few, &row(19)).table("learned").is_none());
        let shown = Comparison::new(&few, &row(20)).table("learned").expect("a table").header;
        assert_eq!(shown, ["method", "steps", "tokens", "training loss, first 5 %", "last 5 %"]);
        let network = recipe("");
        let mut rows = rows(&network);
        rows[0].measurement.as_mut().expect("a measured row").loss = vec![1.0; 100];
        assert!(Comparison::new(&network, &rows).table("learned").is_none());
    }
}
