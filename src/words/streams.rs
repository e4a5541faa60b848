//! Standard output and standard error. A reader that closes early, as `head` does, is no error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints results to standard output, as whole lines.
///
/// # Errors
/// The system's, as on a full disk.
pub fn print(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line for the user to standard error.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
