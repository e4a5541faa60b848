//! [`Learned`]: what a language model's losses came to, and the table of it.

use super::document::Table;
use super::table::{Comparison, Line};
use crate::measure::{Evaluation, Measurement};

/// Fewer steps are no training worth a curve, where nothing was evaluated.
const FEW_STEPS: usize = 20;
/// The first and the last of so many equal parts of the steps stand for the start and the end.
const PARTS: usize = 20;

/// Losses are cross-entropies in nats a token.
pub struct Learned<'a> {
    pub steps: usize,
    /// Of all steps and micro-batches, without padding.
    pub tokens: u64,
    /// Mean training loss of the first 5 % of steps.
    pub train_first: f64,
    /// Mean training loss of the last 5 % of steps.
    pub train_last: f64,
    evaluations: &'a [Evaluation],
}

/// What was measured of a language model that trained, also of one that diverged on the way.
pub fn trained<'a>(line: &Line<'a>) -> Option<&'a Measurement> {
    let m = line.row?.measurement.as_ref()?;
    let enough = !m.evaluations.is_empty() || m.loss.len() >= FEW_STEPS;
    (line.cell.model.decoder().is_some() && !m.loss.is_empty() && enough).then_some(m)
}

impl<'a> Learned<'a> {
    /// `None` for what is no language model, did not run to its end, or hardly trained.
    pub fn of(line: &Line<'a>) -> Option<Self> {
        line.measured()?;
        let m = trained(line)?;
        let (steps, train) = (m.loss.len(), &line.cell.train);
        let part = steps.div_ceil(PARTS);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        Some(Self {
            steps,
            tokens: match &m.loading {
                Some(loading) => loading.tokens(),
                None => (steps * train.tokens() * train.accumulation_steps) as u64,
            },
            train_first: mean(&m.loss[..part]),
            train_last: mean(&m.loss[steps - part..]),
            evaluations: &m.evaluations,
        })
    }

    /// The evaluation after the last step.
    pub fn end(&self) -> Option<&'a Evaluation> {
        self.evaluations.last()
    }

    /// The evaluation with the lowest loss, the earliest of equals, where training went on past it.
    pub fn better_than_end(&self) -> Option<&'a Evaluation> {
        let best = self.evaluations.iter().min_by(|a, b| a.loss.total_cmp(&b.loss))?;
        (best.loss < self.end()?.loss).then_some(best)
    }
}

/// Of every cell that trained; `None` without one.
pub fn table(comparison: &Comparison) -> Option<Table> {
    let columns = [
        "steps",
        "tokens",
        "train_loss_initial",
        "train_loss_final",
        "eval_loss",
        "eval_perplexity",
        "eval_accuracy",
        "lowest_perplexity",
        "lowest_step",
    ];
    let caption = "Losses in nats a token. Training losses are means over the first and the last 5 % of steps; \
                   held-out loss, perplexity (e to its power) and accuracy (the share of tokens predicted) are those \
                   after the last step, on text that no step trained on. The lowest perplexity is given where \
                   training went on past it.";
    comparison.table(caption, comparison.having("train_loss_final"), &columns)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row, recipe, rows};
    use super::*;

    #[test]
    fn the_table_by_hand() {
        let recipe = language_recipe("[grid]\n\"train.accumulation_steps\" = [1, 2]\n");
        // 40 steps: two at each end stand for start and end.
        let falling: Vec<f64> = (0..40).map(|step| 6.0 - 0.1 * f64::from(step)).collect();
        let rows = [
            learned_row(&recipe.cells[0], falling.clone(), &[(0, 6.9, 0.0), (20, 2.0, 0.5), (40, 3.0, 0.25)]),
            learned_row(&recipe.cells[1], falling, &[(0, 6.9, 0.0), (20, 4.0, 0.1), (40, 1.0, 0.5)]),
        ];
        let table = table(&Comparison::new(&recipe, &rows)).expect("a table");
        let size = |n| format!("accumulation steps {n}");
        // 40 steps of 4 x 64 tokens; e^3 = 20.1, e^2 = 7.39, e = 2.72.
        assert_eq!(
            table.rows,
            [
                [size(1).as_str(), "40", "10.2 k", "5.950", "2.150", "3.000", "20.1", "25.0 %", "7.39", "20"],
                [size(2).as_str(), "40", "20.5 k", "5.950", "2.150", "1.000", "2.72", "50.0 %", "–", "–"],
            ]
        );
    }

    #[test]
    fn nothing_is_said_of_what_did_not_train() {
        let few = language_recipe("");
        let row = |losses: usize| [learned_row(&few.cells[0], vec![5.0; losses], &[])];
        assert!(table(&Comparison::new(&few, &row(19))).is_none());
        let shown = table(&Comparison::new(&few, &row(20))).expect("a table").header;
        assert_eq!(shown, ["method", "steps", "tokens", "training loss, first 5 %", "last 5 %"]);
        let network = recipe("");
        let mut rows = rows(&network);
        rows[0].measurement.as_mut().expect("a measured row").loss = vec![1.0; 100];
        assert!(table(&Comparison::new(&network, &rows)).is_none());
    }
}
