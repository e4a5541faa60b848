//! [`Progress`]: what the user sees while cells run, on standard error; standard output is for results.

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use itertools::Itertools;
use rayon::prelude::*;

use super::bars::Bars;
use super::pace::{Steps, fitting};
use crate::common::streams::tell;
use crate::common::text;
use crate::common::{Bytes, locked};
use crate::keys::Settings;
use crate::measure::{Loading, Samples};
use crate::recipe::{Cell, Recipe, keys};
use crate::row::Row;
use crate::train::protocol::Advance;

/// The name of a cell for the user, and its work.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// From 1.
    pub number: usize,
    /// Number of cells of the recipe.
    pub count: usize,
    /// In a cell with several processes: which one, of how many.
    pub process: Option<(usize, usize)>,
    /// The name that the recipe gives it, and its values of the keys that the recipe sweeps: `train.batch_size=4`.
    pub settings: String,
    /// Steps, including warm-up; `None` for epochs, whose steps the cell reports once it has read its samples.
    pub steps: Option<usize>,
    /// Operations of all its steps, or of one step if their number is not known.
    pub work: f64,
}

/// Follows a run.
pub trait Progress: Sync {
    /// The run begins; it will measure these cells.
    fn begin(&self, cells: &[Label]);
    fn cell_started(&self, cell: &Label);
    fn cell_advanced(&self, cell: &Label, advance: Advance);
    fn cell_ended(&self, cell: &Label, row: &Row);
    /// Another run has measured the cell meanwhile.
    fn cell_measured_elsewhere(&self, cell: &Label);
    /// The cell's first process is enough.
    fn cell_not_due(&self, _cell: &Label) {}
    /// Anything else the user should know.
    fn notice(&self, text: &str);
    /// The run has ended.
    fn end(&self);
}

/// Bars on a terminal, otherwise plain lines.
pub fn console() -> Box<dyn Progress> {
    if stderr().is_terminal() { Box::new(Bars::new()) } else { Box::new(Plain::default()) }
}

/// How often [`Plain`] says how far a cell is.
const PERIOD: Duration = Duration::from_secs(30);

/// Plain lines: one when a cell starts, one when it prepares the device, one every half a minute, and one when it ends.
#[derive(Default)]
struct Plain {
    /// Of the running cell, and when it was last spoken of.
    steps: Mutex<(Steps, Option<Instant>)>,
}

impl Progress for Plain {
    fn begin(&self, _cells: &[Label]) {}

    fn cell_started(&self, cell: &Label) {
        *locked(&self.steps) = (Steps::default(), Some(Instant::now()));
        tell(&match cell.steps {
            Some(steps) => format!("{cell}: running {steps} steps"),
            None => format!("{cell}: running as many steps as follow from the data"),
        });
    }

    fn cell_advanced(&self, cell: &Label, advance: Advance) {
        match advance {
            Advance::Preparing { tuned: 0 } => tell(format!("{cell}: {}", preparing(0))),
            Advance::Preparing { .. } => {}
            Advance::Step { done, of, record } => {
                let (steps, told) = &mut *locked(&self.steps);
                record.into_iter().for_each(|record| steps.add(record));
                if told.is_some_and(|told| told.elapsed() >= PERIOD) {
                    *told = Some(Instant::now());
                    let words = [format!("{done} of {of} steps")].into_iter().chain(steps.words(of - done));
                    tell(format!("{cell}: {}", fitting(words, usize::MAX)));
                }
            }
        }
    }

    fn cell_ended(&self, cell: &Label, row: &Row) {
        tell(ended(cell, row));
    }

    fn cell_measured_elsewhere(&self, cell: &Label) {
        tell(measured_elsewhere(cell));
    }

    fn notice(&self, text: &str) {
        tell(text);
    }

    fn end(&self) {}
}

pub(super) fn ended(cell: &Label, row: &Row) -> String {
    match &row.measurement {
        Some(m) => {
            let of = |name: &str, of: &Samples| format!("{name} {}", text::seconds(of.median));
            let phases = [("forward", m.forward.as_ref()), ("backward", m.backward.as_ref())];
            let phases: Vec<String> = phases.iter().filter_map(|(name, s)| Some(of(name, (*s)?))).collect();
            let times = if phases.is_empty() { of("step", &m.step) } else { phases.join(", ") };
            let unsaved: String = m.unsaved.iter().map(|why| format!("; but {why}")).collect();
            let lost = m.loading.as_ref().map(Loading::lost).filter(|lost| !lost.is_empty());
            let lost = lost.map_or(String::new(), |lost| format!("; {lost}"));
            format!("{cell}: {times}, peak {}{lost}{unsaved}", Bytes(m.memory.live_peak))
        }
        // The row has the whole reason.
        None => {
            format!("{cell}: {}: {}", row.status.into_str(), row.reason.lines().next().unwrap_or_default())
        }
    }
}

pub(super) fn preparing(tuned: usize) -> String {
    match tuned {
        0 => "preparing".into(),
        1 => "preparing, 1 matrix product tuned".into(),
        _ => format!("preparing, {tuned} matrix products tuned"),
    }
}

pub(super) fn measured_elsewhere(cell: &Label) -> String {
    format!("{cell}: measured by another run")
}

impl Label {
    /// The labels of all cells of a recipe.
    pub fn of(recipe: &Recipe) -> Vec<Self> {
        let settings: Vec<Settings> = recipe.cells.par_iter().map(Cell::settings).collect();
        let telling = telling(recipe, &settings);
        let label = |(position, cell): (usize, &Cell)| {
            let (name, own) = (recipe.names.get(position).map_or("", String::as_str), &settings[position]);
            let values = telling[name].iter().filter_map(|key| {
                let value = own.get(*key)?;
                Some(format!("{key}={}", keys::shown(key, value)))
            });
            let name = (!name.is_empty()).then(|| name.to_string());
            let shown = name.into_iter().chain(values).join(" ");
            let flops = cell.flops();
            let steps = cell.measure.steps.map(|steps| cell.measure.warmup + steps);
            Self {
                number: position + 1,
                count: recipe.cells.len(),
                process: None,
                settings: text::on_terminal(&shown),
                steps,
                work: (flops.forward + flops.backward + flops.recompute) * steps.unwrap_or(1) as f64,
            }
        };
        recipe.cells.par_iter().enumerate().map(label).collect()
    }
}

/// For each name that the recipe gives to cells, the swept keys in which cells of this name differ; without a name all of them.
fn telling<'a>(recipe: &'a Recipe, settings: &[Settings]) -> HashMap<&'a str, Vec<&'a String>> {
    let name = |position: usize| recipe.names.get(position).map_or("", String::as_str);
    let named = (0..settings.len()).into_group_map_by(|position| name(*position));
    let keys = |(name, positions): (&'a str, Vec<usize>)| {
        let differs = |key: &&String| {
            let mut values = positions.iter().map(|position| settings[*position].get(*key));
            name.is_empty() || !values.all_equal()
        };
        (name, recipe.swept.iter().filter(differs).collect())
    };
    named.into_iter().map(keys).collect()
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cell {}/{}", self.number, self.count)?;
        if let Some((process, of)) = self.process {
            write!(f, ", process {process}/{of}")?;
        }
        if !self.settings.is_empty() {
            write!(f, " {}", self.settings)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Status;
    use crate::run::testing;

    #[test]
    fn a_finished_cell_is_one_line() {
        let recipe = testing::recipe();
        let labels = Label::of(&recipe);
        let mut row = Row::new(&recipe.cells[1], &testing::environment(), Status::Ok, String::new());
        let mut measurement = testing::measurement(0.0123);
        measurement.memory.live_peak = 3 << 20;
        row.measurement = Some(measurement);
        assert_eq!(
            ended(&labels[1], &row),
            "cell 2/3 train.batch_size=2: forward 12.3 ms, backward 12.3 ms, peak 3.00 MiB"
        );
        let row = Row::new(&recipe.cells[1], &testing::environment(), Status::Oom, "too much\nmore".into());
        assert_eq!(ended(&labels[1], &row), "cell 2/3 train.batch_size=2: oom: too much");
    }

    #[test]
    fn a_name_stands_for_the_keys_of_its_cells() {
        let recipe = testing::recipe_with(
            "[[grid]]\nname = \"small\"\n\"train.batch_size\" = 1\n\"train.seq_len\" = 4\n\
             [[grid]]\nname = \"large\"\n\"train.batch_size\" = [2, 3]\n",
        );
        let labels: Vec<String> = Label::of(&recipe).iter().map(ToString::to_string).collect();
        let expected =
            ["cell 1/3 small", "cell 2/3 large train.batch_size=2", "cell 3/3 large train.batch_size=3"];
        assert_eq!(labels, expected);
    }

    #[test]
    fn work_counts_every_step() {
        let labels = Label::of(&testing::recipe());
        // 9 matmuls of 2·4·8·16 operations at batch size 1, over 2 + 15 steps.
        assert_eq!(labels[0].work, 9.0 * 2.0 * (4 * 8 * 16) as f64 * 17.0);
        assert_eq!(labels[2].work, 3.0 * labels[0].work);
    }
}
