//! `runner keys` and `runner schema`: what a recipe may say.

use miette::{Result, miette};

use crate::recipe::keys::all;
use crate::recipe::{reference, schema};
use crate::words::nearest;

/// The keys whose path begins with `prefix`, as a table for a terminal.
///
/// # Errors
/// When there is no such key; names the nearest.
pub fn table(prefix: &str) -> Result<String> {
    let table = reference::table(prefix);
    if !table.is_empty() {
        return Ok(table);
    }
    let known: Vec<&str> = all().iter().flat_map(|entry| [entry.path.as_str(), entry.section.path]).collect();
    let help = nearest(prefix, &known)
        .map_or("`runner keys` lists all".into(), |best| format!("did you mean {best}?"));
    Err(miette!(help = help, "no key of a recipe begins with {prefix}"))
}

/// The JSON Schema of a recipe, for editors.
pub fn schema() -> String {
    format!("{:#}", schema::schema())
}
