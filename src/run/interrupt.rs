//! Ctrl-C and SIGTERM: the first stops the run cleanly, the second ends it at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use miette::{IntoDiagnostic, Result, WrapErr};

use crate::words::locked;

/// Exit code of an interrupted run, as shells have it: 128 + SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Handles Ctrl-C; the first one sets the returned flag.
///
/// # Errors
/// When the system refuses.
pub fn install() -> Result<&'static AtomicBool> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = locked(&INSTALLED);
    if !*installed {
        ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Relaxed) {
                // The cell ends itself: this process's end closes its standard input.
                std::process::exit(EXIT_INTERRUPTED.into());
            }
        })
        .into_diagnostic()
        .wrap_err("cannot take over Ctrl-C")?;
        *installed = true;
    }
    Ok(&INTERRUPTED)
}
