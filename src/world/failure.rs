//! [`Failure`]: how an operation between ranks ends that does not come to its result.

use std::panic::resume_unwind;

/// Why ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A rank is gone or silent. Its own error, or how it ended, says why.
    Lost { peer: usize, reason: String },
    /// Two ranks do not carry out the same operations.
    Disagreement { reason: String },
    /// The ranks' GPUs cannot do something together.
    Gpus { reason: String },
}

impl Failure {
    /// Ends this rank.
    ///
    /// # Panics
    /// Always, with the failure and without a message on standard error.
    pub fn end(self) -> ! {
        resume_unwind(Box::new(self))
    }
}
