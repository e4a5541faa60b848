//! `runner keys`: the keys of a recipe.

use miette::{Result, miette};

use crate::keys::nearest;
use crate::recipe::keys::all;
use crate::recipe::{reference, whole};

/// The keys whose path begins with `prefix`, as a table for a terminal.
///
/// # Errors
/// When there is no such key; names the nearest.
pub fn table(prefix: &str) -> Result<String> {
    let table = reference::table(prefix);
    if !table.is_empty() {
        return Ok(table);
    }
    let of_cells = all().iter().flat_map(|entry| [entry.path.as_str(), entry.section.path]);
    let known: Vec<&str> = of_cells.chain(whole::KEYS.iter().map(|(key, _)| whole::path(key))).collect();
    let help = nearest(prefix, &known)
        .map_or("`runner keys` lists all".into(), |best| format!("did you mean {best}?"));
    Err(miette!(help = help, "no key of a recipe begins with {prefix}"))
}
