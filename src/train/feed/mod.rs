//! [`Feed`]: the batches of a cell's steps.

mod batches;
mod prepared;
mod problems;
mod tokens;

pub use prepared::on_device;
pub use problems::Problems;
pub use tokens::TokenFeed;

use crate::data::task::Exam;
use crate::data::{Position, Prompts, Tokenizer};
use crate::measure::{Load, Texts};

/// Makes each batch when it is asked for: those of a test set would take memory together.
pub type BatchIterator<'a, Batch> = Box<dyn Iterator<Item = Batch> + 'a>;

/// Micro-batches, step by step.
pub trait Feed<Batch> {
    /// The micro-batches of the next step.
    fn next(&mut self) -> Vec<Batch>;

    /// The next held-out batch, if there are any.
    fn held_out(&mut self) -> Option<Batch> {
        None
    }

    /// Tokens of all held-out text; `None` without any.
    fn held_out_tokens(&self) -> Option<u64> {
        None
    }

    /// The micro-batches of the largest step, and then of a step of each other size, for the device's preparation. They do
    /// not count as seen. If all steps see the same batches, the next step is the largest.
    fn rehearsals(&mut self) -> Vec<Vec<Batch>> {
        vec![self.next()]
    }

    /// Rows, and tokens of a row, of the largest micro-batch; `None` if batches have no tokens.
    fn largest(&self) -> Option<[usize; 2]> {
        None
    }

    /// The samples that are trained on, as the model reads them; `None` if they are no texts.
    fn texts(&self) -> Option<Texts> {
        None
    }

    /// Steps of so many passes over the training text; `None` without one.
    fn of_epochs(&self, _epochs: usize) -> Option<usize> {
        None
    }

    /// Makes room for the loads of so many steps.
    fn reserve(&mut self, _steps: usize) {}

    /// The position after the batches of all steps so far.
    fn position(&self) -> Position {
        Position::default()
    }

    /// Before the first step: goes on after steps whose batches end at `start`, with their `loads`.
    fn resume(&mut self, _start: Position, _loads: Vec<Load>) {}

    /// The tokenizer of the text; `None` without text.
    fn tokenizer(&self) -> Option<&Tokenizer> {
        None
    }

    /// The questions before and after training, if there are any.
    fn exam(&self) -> Option<&Exam> {
        None
    }

    /// The prompts that the model continues before and after training, if there are any.
    fn prompts(&self) -> Option<&Prompts> {
        None
    }

    /// The name and batches of each test set whose answers are classes.
    fn classified(&self) -> Vec<(&'static str, BatchIterator<'_, Batch>)> {
        Vec::new()
    }

    /// The load of each step so far.
    fn loads(&self) -> &[Load] {
        &[]
    }
}
