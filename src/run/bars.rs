//! [`Bars`]: progress on a terminal, with one line for the cells and one for the steps of the running cell. Finished cells
//! stay above them as lines.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::pace::{Pace, Steps, fitting};
use super::progress::{Label, Progress, ended, measured_elsewhere, preparing};
use crate::common::locked;
use crate::common::streams::{readable, tell};
use crate::common::terminal;
use crate::row::{Row, Status};
use crate::train::protocol::Advance;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;
/// How often the lines change: steps may be shorter than anybody can read.
const PERIOD: Duration = Duration::from_millis(100);

pub struct Bars {
    all: MultiProgress,
    cells: ProgressBar,
    steps: ProgressBar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pace: Pace,
    steps: Steps,
    /// The running cell.
    label: String,
    shown: Option<Instant>,
}

impl Bars {
    pub fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let (characters, width) = (if terminal::has_unicode() { "█░" } else { "#-" }, bar_width(columns()));
        let bar = || {
            let style = ProgressStyle::with_template(&format!("{{bar:{width}}} {{msg}}"));
            let style = style.expect("a constant template").progress_chars(characters);
            all.add(ProgressBar::no_length().with_style(style))
        };
        let (cells, steps) = (bar(), bar());
        Self { all, cells, steps, state: Mutex::default() }
    }

    /// Shows the cells, the time left and the running one.
    fn show_cells(&self, state: &State) {
        let left = state.pace.left(Instant::now());
        let left = left.map_or_else(String::new, |left| format!("about {} left", HumanDuration(left)));
        let (done, all) = (self.cells.position(), self.cells.length().unwrap_or_default());
        show(&self.cells, [format!("{done}/{all} cells"), left, state.label.clone()]);
    }

    /// Changes what is known of the cells, and shows it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = locked(&self.state);
        change(&mut state);
        self.show_cells(&state);
    }
}

/// Columns of the terminal.
fn columns() -> usize {
    terminal::width().unwrap_or(COLUMNS)
}

/// Of a bar: most of a narrow terminal is for the words.
fn bar_width(columns: usize) -> usize {
    (columns / 8).clamp(4, 30)
}

/// Shows the words behind a bar that fit into the terminal.
fn show(bar: &ProgressBar, words: impl IntoIterator<Item = String>) {
    let columns = columns();
    bar.set_message(readable(&fitting(words, columns.saturating_sub(bar_width(columns) + 1))));
}

impl Progress for Bars {
    fn begin(&self, cells: &[Label]) {
        self.cells.set_length(cells.len() as u64);
        self.change(|state| state.pace.total = cells.iter().map(|cell| cell.work).sum());
    }

    fn cell_started(&self, cell: &Label) {
        self.steps.reset();
        self.steps.set_length(cell.steps.unwrap_or(0) as u64);
        self.steps.set_message("");
        self.change(|state| {
            (state.label, state.steps, state.shown) = (cell.to_string(), Steps::default(), None);
            state.pace.start(cell.work, Instant::now());
        });
    }

    fn cell_advanced(&self, _cell: &Label, advance: Advance) {
        match advance {
            Advance::Preparing { tuned } => show(&self.steps, [preparing(tuned)]),
            Advance::Step { done, of, record } => {
                let mut state = locked(&self.state);
                record.into_iter().for_each(|record| state.steps.add(record));
                state.pace.share = done as f64 / of.max(1) as f64;
                if state.shown.is_some_and(|shown| shown.elapsed() < PERIOD) && done < of {
                    return;
                }
                state.shown = Some(Instant::now());
                self.steps.set_length(of as u64);
                self.steps.set_position(done as u64);
                let words = state.steps.words(of - done);
                show(&self.steps, [format!("{done}/{of} steps")].into_iter().chain(words));
                self.show_cells(&state);
            }
        }
    }

    fn cell_ended(&self, cell: &Label, row: &Row) {
        self.notice(&ended(cell, row));
        self.cells.inc(1);
        self.change(|state| state.pace.finish(row.status == Status::Ok, Instant::now()));
    }

    fn cell_measured_elsewhere(&self, cell: &Label) {
        self.notice(&measured_elsewhere(cell));
        self.cell_not_due(cell);
    }

    fn cell_not_due(&self, cell: &Label) {
        self.cells.inc(1);
        self.change(|state| state.pace.total -= cell.work);
    }

    fn notice(&self, text: &str) {
        if self.all.println(readable(text)).is_err() {
            tell(text);
        }
    }

    fn end(&self) {
        self.steps.finish_and_clear();
        self.cells.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_most_of_a_narrow_terminal() {
        assert_eq!([20, 40, 80, 400].map(bar_width), [4, 5, 10, 30]);
    }
}
