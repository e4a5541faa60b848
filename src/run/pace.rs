//! The speed of a run: [`Pace`] over its cells, [`Steps`] over the steps of the running cell.

use std::time::{Duration, Instant};

use indicatif::HumanDuration;

use crate::common::Bytes;
use crate::common::text::{rate, significant};
use crate::train::protocol::StepRecord;

/// Estimates the time left from the operations per second of the cells so far.
#[derive(Debug, Default)]
pub struct Pace {
    /// Operations of all cells, of the finished ones and of the running one.
    pub total: f64,
    done: f64,
    running: f64,
    /// The share of the running cell's work that is done.
    pub share: f64,
    /// Time of the finished cells.
    spent: Duration,
    started: Option<Instant>,
}

impl Pace {
    pub fn start(&mut self, work: f64, now: Instant) {
        (self.running, self.share, self.started) = (work, 0.0, Some(now));
    }

    /// A cell that did not run to its end says nothing about the pace, so it does not count.
    pub fn finish(&mut self, whole: bool, now: Instant) {
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
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let done = self.done + self.running * self.share;
        // Before the first step of the running cell its time would count without any work.
        let running = self.started.filter(|_| self.share > 0.0).map(|start| now - start).unwrap_or_default();
        let left = (self.spent + running).as_secs_f64() / done * (self.total - done).max(0.0);
        Duration::try_from_secs_f64(left).ok().filter(|_| done > 0.0)
    }
}

/// The steps of the running cell, as far as they are known.
#[derive(Debug, Default)]
pub struct Steps {
    newest: Option<StepRecord>,
    /// Of the steps that are timed.
    timed: usize,
    seconds: f64,
    tokens: u64,
}

impl Steps {
    pub fn add(&mut self, record: StepRecord) {
        if let Some(seconds) = record.seconds {
            self.timed += 1;
            self.seconds += seconds;
            self.tokens += record.tokens;
        }
        self.newest = Some(record);
    }

    /// What a reader wants to know, the most important first: loss, speed and time left over all steps so far, and memory.
    /// `left`: steps that are not done.
    pub fn words(&self, left: usize) -> Vec<String> {
        let Some(newest) = &self.newest else { return Vec::new() };
        let mut words = vec![format!("loss {}", significant(newest.loss))];
        if self.seconds > 0.0 {
            words.push(format!("{} tokens/s", rate(self.tokens as f64 / self.seconds)));
            let seconds = self.seconds / self.timed as f64 * left as f64;
            let duration = Duration::try_from_secs_f64(seconds).ok().filter(|_| left > 0);
            words.extend(duration.map(|left| format!("{} left", HumanDuration(left))));
        }
        words.push(Bytes(newest.memory_bytes).to_string());
        words
    }
}

/// As many of these words as fit into a line of so many columns, with two spaces between them. Half a number would be another
/// one.
pub fn fitting(words: impl IntoIterator<Item = String>, columns: usize) -> String {
    let mut line = String::new();
    for word in words.into_iter().filter(|word| !word.is_empty()) {
        let gap = if line.is_empty() { "" } else { "  " };
        if line.chars().count() + gap.len() + word.chars().count() > columns {
            break;
        }
        line += gap;
        line += &word;
    }
    line
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

    #[test]
    fn a_line_has_whole_words_of_the_newest_step() {
        let record = |step, loss, seconds| StepRecord {
            step,
            loss,
            learning_rate: None,
            gradient_norm: None,
            tokens: 2048,
            seconds,
            memory_bytes: 3 << 20,
        };
        let mut steps = Steps::default();
        assert!(steps.words(9).is_empty());
        steps.add(record(1, 6.0, None));
        assert_eq!(steps.words(8), ["loss 6.00", "3.00 MiB"], "a warm-up step has no time");
        steps.add(record(2, 5.0, Some(0.5)));
        steps.add(record(3, 2.3456, Some(1.5)));
        let words = steps.words(60);
        assert_eq!(words, ["loss 2.35", "2,048 tokens/s", "60 seconds left", "3.00 MiB"]);
        assert_eq!(fitting(words.clone(), 40), "loss 2.35  2,048 tokens/s");
        assert_eq!(fitting(words.clone(), 80), words.join("  "));
        assert_eq!(fitting(words, 8), "");
    }
}
