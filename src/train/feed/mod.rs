//! [`Feed`]: what the steps of a cell work on.

mod prepared;
mod problems;
mod tokens;

pub use prepared::on_device;
pub use problems::Problems;
pub use tokens::TokenFeed;

use crate::data::task::Exam;
use crate::data::{Position, Prompts, Tokenizer};
use crate::measure::Load;

/// Micro-batches, step by step.
pub trait Feed<Batch> {
    /// The micro-batches of the next step.
    fn next(&mut self) -> Vec<Batch>;

    /// The next batch that no step trains on; `None` where there is none of that kind.
    fn held_out(&mut self) -> Option<Batch> {
        None
    }

    /// The micro-batches of the largest step, and then of one of each other size, for the device to prepare
    /// for: they do not count as seen. Where steps see the same each time, the next one is the largest.
    fn rehearsals(&mut self) -> Vec<Vec<Batch>> {
        vec![self.next()]
    }

    /// Rows and tokens of a row of the largest micro-batch; `None` where batches are no tokens.
    fn largest(&self) -> Option<[usize; 2]> {
        None
    }

    /// Steps of so many passes over the samples; `None` where there are no samples.
    fn of_epochs(&self, _epochs: usize) -> Option<usize> {
        None
    }

    /// Where the batches of the steps so far end.
    fn position(&self) -> Position {
        Position::default()
    }

    /// Goes on behind the steps whose batches end at `start`. `loads`: of these steps. Before the first step.
    fn resume(&mut self, _start: Position, _loads: Vec<Load>) {}

    /// What turned the text into tokens; `None` where there is no text.
    fn tokenizer(&self) -> Option<&Tokenizer> {
        None
    }

    /// What the model is asked before training and after it; `None` where it is asked nothing.
    fn exam(&self) -> Option<&Exam> {
        None
    }

    /// What the model continues before training and after it; `None` where it writes nothing.
    fn prompts(&self) -> Option<&Prompts> {
        None
    }

    /// Batches of each test set whose answers are classes, with the set's name.
    fn classified(&self) -> Vec<(&'static str, Vec<Batch>)> {
        Vec::new()
    }

    /// What loading each step's batches came to, as far as they count as seen.
    fn loads(&self) -> &[Load] {
        &[]
    }
}
