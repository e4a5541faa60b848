//! Standard output and standard error. A reader that closes early, as `head` does, is no error.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::terminal::{has_unicode, in_ascii};
use super::text::on_terminal;

/// Prints results to standard output, as whole lines.
///
/// # Errors
/// The system's, as on a full disk.
pub fn print(text: impl Display) -> io::Result<()> {
    // Through a pipe too: behind `tee` or `less` is a terminal.
    let text = on_terminal(&text.to_string());
    let text = if io::stdout().is_terminal() && !has_unicode() { in_ascii(&text) } else { text };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line for the user to standard error.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", readable(&text.to_string()));
}

/// Text as standard error's reader can show it: no control characters, and on a terminal only signs that it has.
pub fn readable(text: &str) -> String {
    let text = on_terminal(text);
    if io::stderr().is_terminal() && !has_unicode() { in_ascii(&text) } else { text }
}

/// Shows an error on standard error: in colour on a terminal, unless it has characters that this terminal must not get or
/// cannot show. Those of the colours could not be told from them.
pub fn tell_error(error: &miette::Report) {
    let mut plain = String::new();
    let drawing = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    match drawing.render_report(&mut plain, error.as_ref()) {
        Ok(()) if readable(&plain) == plain => _ = writeln!(io::stderr(), "{error:?}"),
        Ok(()) => tell(plain),
        Err(_) => tell(error),
    }
}
