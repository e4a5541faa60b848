//! What is verified, as cells: a reference is a recipe, which `--set` may change where its values still hold.

use std::collections::BTreeSet;

use itertools::Itertools;
use miette::{Result, miette};

use crate::common::text;
use crate::keys::is_within;
use crate::recipe::{Cell, Recipe, Setting, Source};

/// A cell to verify, and what sets it apart from the others.
pub struct Variant {
    /// Empty where there is one cell.
    pub label: String,
    pub cell: Cell,
}

/// The cells of a reference's recipe with settings of the keys or sections that are `verified`.
///
/// # Errors
/// A setting that no recipe takes, or one of another key.
pub fn variants(recipe: String, verified: &[&str], settings: &[Setting]) -> Result<Vec<Variant>> {
    let source = as_source(recipe);
    let original = Recipe::parse_finished(&source, false)?.cells[0].settings();
    let mut recipe = Recipe::parse(&source.with(settings))?;
    if !settings.iter().any(|setting| setting.concerns("train.graph")) {
        // Its steps are looked into, which no graph allows.
        recipe.cells.iter_mut().for_each(|cell| cell.train.graph = false);
    }
    let is_verified = |key: &str| verified.iter().any(|known| is_within(key, known));
    for cell in &recipe.cells {
        let settings = cell.settings();
        let keys: BTreeSet<&String> = settings.keys().chain(original.keys()).collect();
        let changed = |key: &&&String| settings.get(**key) != original.get(**key) && !is_verified(key);
        if let Some(key) = keys.iter().find(changed) {
            return Err(miette!(
                help = format!("this reference is verified with settings of {}", verified.join(", ")),
                "`{key}` is fixed by this reference, or has no part in it"
            ));
        }
    }
    let swept = &recipe.swept;
    let label = |cell: &Cell| {
        let settings = cell.settings();
        let described = swept.iter().filter_map(|key| {
            let value = text::value(settings.get(key)?);
            (value != "custom").then(|| format!("{} {value}", key.rsplit('.').next().unwrap_or(key)))
        });
        described.into_iter().join(", ")
    };
    Ok(recipe.cells.iter().map(|cell| Variant { label: label(cell), cell: cell.clone() }).collect())
}

/// The text of a reference's recipe.
pub fn as_source(text: String) -> Source {
    Source { path: "the reference as a recipe".into(), text }
}

/// A text as TOML writes it.
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}
