//! Standard output and standard error: a reader that has gone away, as `head` does, ends nothing.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints results to standard output, as whole lines. It is no error when nobody reads them.
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

/// Tells the user something on standard error, in a line. Nobody need read it.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
