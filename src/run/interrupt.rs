//! Ctrl-C and SIGTERM: the first stops the run cleanly, the second at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use miette::{IntoDiagnostic, Result, WrapErr};

/// Exit code of a run stopped by Ctrl-C, as shells count it: 128 + SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C; the flag it returns is set by the first one. Call it once.
///
/// # Errors
/// When a handler is installed already.
pub fn install() -> Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Relaxed) {
            // The running cell ends itself when its standard input closes with this process.
            std::process::exit(EXIT_INTERRUPTED.into());
        }
    })
    .into_diagnostic()
    .wrap_err("cannot take over Ctrl-C")?;
    Ok(&INTERRUPTED)
}
