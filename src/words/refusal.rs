//! [`refuse`]: ends a cell that cannot run with its user's files or settings.

use std::fmt::Display;
use std::panic::resume_unwind;

/// What is wrong with the user's files or settings and what to change; the reason of the cell's row, word for word.
#[derive(Debug)]
pub struct Refusal(pub String);

/// Ends the cell with this reason. Any other panic is a fault of the runner, and its row says so.
///
/// # Panics
/// Always, with a [`Refusal`] and without a message on standard error.
pub fn refuse(reason: impl Display) -> ! {
    resume_unwind(Box::new(Refusal(reason.to_string())))
}
