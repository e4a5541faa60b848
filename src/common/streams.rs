//! Standard output and standard error. A reader that closes early, as `head` does, is no error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::text::on_terminal;

/// Prints results to standard output, as whole lines.
///
/// # Errors
/// The system's, as on a full disk.
pub fn print(text: impl Display) -> io::Result<()> {
    // Through a pipe too: behind `tee` or `less` is a terminal.
    let text = on_terminal(&text.to_string());
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line for the user to standard error.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", on_terminal(&text.to_string()));
}

/// Shows an error on standard error: in colour on a terminal, unless it has characters that a terminal must not get. Those of
/// the colours could not be told from them.
pub fn tell_error(error: &miette::Report) {
    let mut plain = String::new();
    let drawing = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    match drawing.render_report(&mut plain, error.as_ref()) {
        Ok(()) if on_terminal(&plain) == plain => _ = writeln!(io::stderr(), "{error:?}"),
        Ok(()) => tell(plain),
        Err(_) => tell(error),
    }
}
