//! [`Learned`]: what a language model's losses came to, and the table of it.

use super::content::{naming, or_dash, strings};
use super::document::Table;
use super::table::{Comparison, Line};
use crate::measure::{Evaluation, Measurement};
use crate::words::text::significant;

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

    /// The evaluation with the lowest loss, the earliest of equals.
    pub fn best(&self) -> Option<&'a Evaluation> {
        self.evaluations.iter().min_by(|a, b| a.loss.total_cmp(&b.loss))
    }

    /// The best evaluation where training went on past it.
    pub fn better_than_end(&self) -> Option<&'a Evaluation> {
        self.best().filter(|best| self.end().is_some_and(|end| best.loss < end.loss))
    }
}

/// Of every cell that trained; `None` without one.
pub fn table(comparison: &Comparison) -> Option<Table> {
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    let learned: Vec<(&Line, Learned)> =
        comparison.lines.iter().filter_map(|line| Some((line, Learned::of(line)?))).collect();
    let evaluated = learned.iter().any(|(_, learned)| learned.end().is_some());
    let passed = learned.iter().any(|(_, learned)| learned.better_than_end().is_some());
    header.extend(strings(&["steps", "tokens", "training loss, first 5 %", "last 5 %"]));
    if evaluated {
        header.extend(strings(&["held-out loss", "perplexity", "accuracy"]));
    }
    header.extend(passed.then(|| "best perplexity".to_string()));
    let loss = |loss: f64| format!("{loss:.3}");
    let row = |(line, learned): &(&Line, Learned)| {
        let end = learned.end();
        let mut row = names(line);
        row.extend([learned.steps.to_string(), count(learned.tokens)]);
        row.extend([loss(learned.train_first), loss(learned.train_last)]);
        if evaluated {
            row.extend([
                or_dash(end.map(|e| loss(e.loss))),
                or_dash(end.map(|e| perplexity(e.perplexity()))),
                or_dash(end.map(accuracy)),
            ]);
        }
        let best = |e: &Evaluation| format!("{} after step {}", perplexity(e.perplexity()), e.step);
        row.extend(passed.then(|| learned.better_than_end().map_or_else(|| "the last".into(), best)));
        row
    };
    (!learned.is_empty()).then(|| Table {
        caption:
            "Losses in nats a token. Training losses are means over the first and the last 5 % of steps; \
                  held-out loss, perplexity (e to its power) and accuracy (the share of tokens predicted) are \
                  those after the last step, on text that no step trained on."
                .into(),
        rows: learned.iter().map(row).collect(),
        header,
        text_columns,
    })
}

/// Three digits, in powers of ten where they would be many.
pub fn perplexity(value: f64) -> String {
    if value < 1e6 { significant(value) } else { format!("{value:.1e}") }
}

/// `34.1 %`
pub fn accuracy(evaluation: &Evaluation) -> String {
    format!("{:.1} %", evaluation.accuracy * 100.0)
}

/// `9984`, `31.7 k`, `1.20 G`
pub fn count(n: u64) -> String {
    match n as f64 {
        n if n < 1e4 => n.to_string(),
        n if n < 1e6 => format!("{} k", significant(n / 1e3)),
        n if n < 1e9 => format!("{} M", significant(n / 1e6)),
        n => format!("{} G", significant(n / 1e9)),
    }
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
                [
                    size(1).as_str(),
                    "40",
                    "10.2 k",
                    "5.950",
                    "2.150",
                    "3.000",
                    "20.1",
                    "25.0 %",
                    "7.39 after step 20"
                ],
                [size(2).as_str(), "40", "20.5 k", "5.950", "2.150", "1.000", "2.72", "50.0 %", "the last"],
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
