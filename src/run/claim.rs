//! [`require_own`]: two recipes of one file name, in different folders, would share a results folder.

use std::fs;

use miette::{Result, miette};

use super::row_files::read_rows;
use super::store::{RECIPE, Store};
use crate::common::streams::tell;
use crate::recipe::Recipe;

/// Refuses a folder that has the rows of another recipe and none of this one; says so where another report is replaced.
///
/// A recipe that was changed has either its title still, or some of its rows.
///
/// # Errors
/// As above, or when the rows cannot be read.
pub(super) fn require_own(store: &Store, recipe: &Recipe) -> Result<()> {
    let Ok(text) = fs::read_to_string(store.folder().join(RECIPE)) else { return Ok(()) };
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let title = table.get("title").and_then(toml::Value::as_str).unwrap_or_default();
    if title == recipe.title || !store.rows().is_dir() || read_rows(&store.rows())?.rows.is_empty() {
        return Ok(());
    }
    if store.peek(&recipe.cells, &|_| {})?.iter().flatten().any(Option::is_some) {
        let folder = store.folder().display();
        tell(format!("the report of \"{}\" replaces the one of \"{title}\" in {folder}", recipe.title));
        return Ok(());
    }
    let folder = store.folder().display();
    Err(miette!(
        help = format!(
            "write to another folder by --results DIR, or give the recipe another file name; if it is the same recipe \
             under a new title, remove {folder}/{RECIPE}"
        ),
        "{folder} has the results of another recipe {}.toml, \"{title}\", and none of this one, \"{}\"",
        recipe.name(),
        recipe.title
    ))
}
