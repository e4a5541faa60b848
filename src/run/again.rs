//! [`TryAgain`]: an error that may pass, so that the same command is worth another try.

/// `EX_TEMPFAIL` of sysexits.h: a batch system may start such a job again.
pub const EXIT_TRY_AGAIN: u8 = 75;

/// Such as a device that stays busy or a full disk. Finished rows stay, and the next run goes on from them.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
#[diagnostic(help("{help}"))]
pub struct TryAgain {
    pub message: String,
    pub help: String,
}
