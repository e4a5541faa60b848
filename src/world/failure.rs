//! [`Failure`]: why an operation between ranks has no result.

use std::panic::resume_unwind;

/// Why ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A rank is gone or does not answer. Its own error, or the way it ended, has the cause.
    Lost { peer: usize, reason: String },
    /// Two ranks carry out different operations.
    Disagreement { reason: String },
    /// The ranks' GPUs cannot carry out an operation.
    Gpus { reason: String },
}

impl Failure {
    /// Ends this rank.
    ///
    /// # Panics
    /// Always, with the failure as payload and no message on standard error.
    pub fn end(self) -> ! {
        resume_unwind(Box::new(self))
    }
}
