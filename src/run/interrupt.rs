//! Ctrl-C and SIGTERM: the first stops the run cleanly, the second ends it at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use miette::{IntoDiagnostic, Result, WrapErr};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::common::locked;
use crate::common::streams::tell;

/// Exit code of an interrupted run, as shells have it: 128 + SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A file beyond the limit on files (`ulimit -f`) becomes an error of the write, here and in the processes of cells, which
/// inherit this; by default the system ends the program.
pub fn report_large_files() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &ignore) };
}

/// Handles Ctrl-C; the first one sets the returned flag.
///
/// # Errors
/// When the system refuses.
pub fn install() -> Result<&'static AtomicBool> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = locked(&INSTALLED);
    if !*installed {
        let refused = "cannot take over Ctrl-C";
        let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler is installed, only the signal's earlier action is learned.
        let hangup = unsafe { sigaction(Signal::SIGHUP, &ignore) }.into_diagnostic().wrap_err(refused)?;
        ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Relaxed) {
                // The cell ends itself: this process's end closes its standard input.
                std::process::exit(EXIT_INTERRUPTED.into());
            }
            tell(
                "interrupted: what is finished is kept and reported, and a cell with save.state saves it; another \
                 Ctrl-C ends the program at once",
            );
        })
        .into_diagnostic()
        .wrap_err(refused)?;
        if matches!(hangup.handler(), SigHandler::SigIgn) {
            // Under nohup the run goes on when its terminal is gone.
            // SAFETY: no handler is installed.
            unsafe { sigaction(Signal::SIGHUP, &ignore) }.into_diagnostic().wrap_err(refused)?;
        }
        *installed = true;
    }
    Ok(&INTERRUPTED)
}
