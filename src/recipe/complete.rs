//! [`complete`]: checks values against the key table, and adds its defaults where nothing is written.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::diagnostic::{RecipeError, Source};
use super::keys::{self, Entry};
use super::tagged::{KIND, find, is_tag, table_of};
use crate::keys::Section;
use crate::model::config;
use crate::model::families::Family;
use crate::params::RANDOM;

/// Checks every value where it is written, and adds the defaults of the keys that are not.
///
/// # Errors
/// A number that its key does not take.
pub fn complete(root: &mut DeTable<'_>, source: &Source) -> Result<(), RecipeError> {
    name_kind(root, source)?;
    // Entries of a section stand together.
    for entries in keys::all().chunk_by(|a, b| std::ptr::eq(a.section, b.section)) {
        let section = entries[0].section;
        let added = add_section(root, section, entries);
        if !table_of(root, section.path).is_some_and(|table| has(table, section)) {
            continue;
        }
        for Entry { key, default, .. } in entries {
            let decided = key.follows.iter().any(|other| find(root, other).is_some());
            let table = table_of(root, section.path).expect("it was there");
            if let Some(value) = table.get(key.name) {
                let checked = key.values.check(ValueDeserializer::from(value.clone()));
                checked.map_err(|e| source.toml_error(&e, &[]).or_help(key.doc))?;
            } else if let Some(default) = default
                // A model has its sizes from a preset or a folder; a table that is written names its kind.
                && !(decided || section.path == "model" || is_tag(section.path, key.name) && !added)
            {
                table.insert(Spanned::new(0..0, key.name.into()), default.clone());
            }
        }
    }
    Ok(())
}

/// Names the kind of a model that is written without one: that of its preset, or of its weights.
///
/// # Errors
/// When its weights cannot be read.
fn name_kind(root: &mut DeTable<'_>, source: &Source) -> Result<(), RecipeError> {
    let Some(model) = table_of(root, "model").filter(|model| !model.contains_key(KIND)) else {
        return Ok(());
    };
    let text = |key: &str| Some((model.get(key)?.get_ref().as_str()?.to_string(), model.get(key)?.span()));
    let kind = match (text("preset"), text("weights")) {
        (Some((preset, _)), _) => Family::of_preset(&preset).map(|family| family.kind.to_string()),
        (None, Some((weights, span))) if weights != RANDOM => {
            let kind = config::kind_of(Path::new(&weights));
            Some(kind.map_err(|why| source.at(Some(span), why, String::new()))?)
        }
        (None, _) => None,
    };
    if let Some(kind) = kind {
        model.insert(Spanned::new(0..0, KIND.into()), Spanned::new(0..0, DeValue::String(kind.into())));
    }
    Ok(())
}

/// Adds the table of a section that the recipe does not write, where all of its keys have a default.
fn add_section(root: &mut DeTable<'_>, section: &Section, entries: &[Entry]) -> bool {
    let defaults = entries.iter().any(|of| of.default.is_some());
    let required = entries.iter().any(|of| of.key.default.is_required());
    let (parent, name) = section.path.rsplit_once('.').unwrap_or(("", section.path));
    let parent = table_of(root, parent).filter(|_| defaults && !required && section.kind.is_none());
    let Some(parent) = parent.filter(|table| !name.is_empty() && !table.contains_key(name)) else {
        return false;
    };
    parent.insert(Spanned::new(0..0, name.into()), Spanned::new(0..0, DeValue::Table(DeTable::new())));
    true
}

/// Whether the table has the section's keys, by what its kind is.
fn has(table: &DeTable<'_>, section: &Section) -> bool {
    section.kind.is_none_or(|kind| {
        let value = table.get(kind.key).and_then(|value| value.get_ref().as_str());
        value.is_some_and(|value| kind.has(value))
    })
}
