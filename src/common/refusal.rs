//! [`refuse`]: ends a cell that cannot run with its user's files or settings; [`message`]: what any other panic says.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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

/// The result of `work`, or the reason for which it refused to go on. Any other panic goes on.
///
/// # Errors
/// The [`Refusal`].
pub fn unless_refused<T>(work: impl FnOnce() -> T) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match panic.downcast::<Refusal>() {
        Ok(refusal) => *refusal,
        Err(panic) => resume_unwind(panic),
    })
}

/// What a panic says.
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
