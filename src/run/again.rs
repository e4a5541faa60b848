//! [`TryAgain`]: what stops a run and may pass, so that the same command is worth another try.

/// `EX_TEMPFAIL` of sysexits.h: batch systems start such a job again.
pub const EXIT_TRY_AGAIN: u8 = 75;

/// A device that stays busy, a disk that is full. Finished rows stay, and the next run goes on from them.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
#[diagnostic(help("{help}"))]
pub struct TryAgain {
    pub message: String,
    pub help: String,
}
