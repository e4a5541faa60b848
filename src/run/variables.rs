//! Numbers in environment variables, as batch systems and launchers set them.

use miette::{Result, miette};

/// The number in a variable; an empty variable counts as not set.
///
/// # Errors
/// When it is not a number; `help` says what to do.
pub fn number(lookup: &dyn Fn(&str) -> Option<String>, name: &str, help: &str) -> Result<Option<usize>> {
    let Some(text) = lookup(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let number = text.trim().parse();
    number
        .map(Some)
        .map_err(|_| miette!(help = help, "the variable {name} is \"{text}\", which is no number"))
}
