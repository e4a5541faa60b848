//! [`Bars`]: progress on a terminal, with one bar for the cells and one for the steps of the running cell. Finished cells
//! stay above them as lines.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::progress::{Label, Progress, ended, measured_elsewhere, preparing};
use crate::common::streams::tell;
use crate::common::text::on_terminal;
use crate::row::{Row, Status};
use crate::train::protocol::Advance;

pub struct Bars {
    all: MultiProgress,
    cells: ProgressBar,
    steps: ProgressBar,
    pace: Mutex<Pace>,
}

impl Bars {
    pub fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let bar = |template| {
            let style = ProgressStyle::with_template(template).expect("a constant template");
            all.add(ProgressBar::no_length().with_style(style))
        };
        let cells = bar("{bar:30} {pos}/{len} cells  {msg}");
        let steps = bar("{bar:30} {pos}/{len} steps  {msg}");
        Self { all, cells, steps, pace: Mutex::default() }
    }

    /// Applies `change` and shows the time left.
    fn pace(&self, change: impl FnOnce(&mut Pace)) {
        let Ok(mut pace) = self.pace.lock() else { return };
        change(&mut pace);
        let message = match pace.left(Instant::now()) {
            Some(left) => format!("about {} left", HumanDuration(left)),
            None => String::new(),
        };
        self.cells.set_message(message);
    }
}

impl Progress for Bars {
    fn begin(&self, cells: &[Label]) {
        self.cells.set_length(cells.len() as u64);
        self.pace(|pace| pace.total = cells.iter().map(|cell| cell.work).sum());
    }

    fn cell_started(&self, cell: &Label) {
        self.steps.reset();
        self.steps.set_length(cell.steps.unwrap_or(0) as u64);
        self.steps.set_message(cell.to_string());
        self.pace(|pace| pace.start(cell.work, Instant::now()));
    }

    fn cell_advanced(&self, cell: &Label, advance: Advance) {
        match advance {
            Advance::Preparing { tuned } => self.steps.set_message(preparing(cell, tuned)),
            Advance::Step { done, of } => {
                self.steps.set_message(cell.to_string());
                self.steps.set_length(of as u64);
                self.steps.set_position(done as u64);
                self.pace(|pace| pace.share = done as f64 / of.max(1) as f64);
            }
        }
    }

    fn cell_ended(&self, cell: &Label, row: &Row) {
        self.notice(&ended(cell, row));
        self.cells.inc(1);
        self.pace(|pace| pace.finish(row.status == Status::Ok, Instant::now()));
    }

    fn cell_measured_elsewhere(&self, cell: &Label) {
        self.notice(&measured_elsewhere(cell));
        self.cell_not_due(cell);
    }

    fn cell_not_due(&self, cell: &Label) {
        self.cells.inc(1);
        self.pace(|pace| pace.total -= cell.work);
    }

    fn notice(&self, text: &str) {
        if self.all.println(on_terminal(text)).is_err() {
            tell(text);
        }
    }

    fn end(&self) {
        self.steps.finish_and_clear();
        self.cells.finish_and_clear();
    }
}

/// Estimates the time left from the operations per second of the cells so far.
#[derive(Debug, Default)]
struct Pace {
    /// Operations of all cells, of the finished ones and of the running one.
    total: f64,
    done: f64,
    running: f64,
    /// The share of the running cell's work that is done.
    share: f64,
    /// Time of the finished cells.
    spent: Duration,
    started: Option<Instant>,
}

impl Pace {
    fn start(&mut self, work: f64, now: Instant) {
        (self.running, self.share, self.started) = (work, 0.0, Some(now));
    }

    /// A cell that did not run to its end says nothing about the pace, so it does not count.
    fn finish(&mut self, whole: bool, now: Instant) {
        let took = self.started.take().map(|start| now - start).unwrap_or_default();
        if whole {
            self.done += self.running;
            self.spent += took;
        } else {
            self.total -= self.running;
        }
        (self.running, self.share) = (0.0, 0.0);
    }

    /// `None` until the first step of the first cell is done.
    fn left(&self, now: Instant) -> Option<Duration> {
        let done = self.done + self.running * self.share;
        // Before the first step of the running cell its time would count without any work.
        let running = self.started.filter(|_| self.share > 0.0).map(|start| now - start).unwrap_or_default();
        let left = (self.spent + running).as_secs_f64() / done * (self.total - done).max(0.0);
        Duration::try_from_secs_f64(left).ok().filter(|_| done > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_work_not_the_number_of_cells() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace { total: 100.0, ..Pace::default() };
        pace.start(10.0, start);
        assert_eq!(pace.left(after(1)), None);
        pace.share = 0.5;
        assert_eq!(pace.left(after(2)), Some(Duration::from_secs(38)), "5 of 100 in 2 s");
        pace.finish(true, after(4));
        assert_eq!(pace.left(after(4)), Some(Duration::from_secs(36)), "10 of 100 in 4 s");
        pace.start(40.0, after(4));
        pace.finish(false, after(5));
        assert_eq!(pace.left(after(5)), Some(Duration::from_secs(20)), "the failed cell's 40 are gone");
    }
}
