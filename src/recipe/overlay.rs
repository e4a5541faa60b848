//! [`lay`]: the one rule by which settings change a recipe, wherever they are written: in a grid, a ladder, `[on_cpu]` or
//! `--set`, as dotted keys or as tables.
//!
//! Settings that name what a section is (its `kind`, `method`, `strategy` or `schedule`) take the place of the section, and
//! its other keys return to their defaults: AdamW's learning rate is none for SGD. All others change the keys that
//! they write. A section that has not said what it is yet is completed: its keys are for all kinds.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{RecipeError, Source};
use super::grid::{Layer, Override};
use super::tagged;

/// Lays settings that are written together over a recipe.
///
/// # Errors
/// A key that is not dotted, or that goes through a value.
pub fn lay<'i>(root: &mut DeTable<'i>, layer: &Layer<'i>, source: &Source) -> Result<(), RecipeError> {
    merge(root, "", nested(layer.clone(), source)?, source)
}

/// The settings as tables without dotted keys; of several for one key the last counts.
fn nested<'i>(layer: Layer<'i>, source: &Source) -> Result<DeTable<'i>, RecipeError> {
    let mut table = DeTable::new();
    for (key, value) in layer {
        write(&mut table, &key, key.get_ref(), value, source)?;
    }
    Ok(table)
}

/// The settings of a table, in the order in which they are written.
pub fn layer(table: DeTable<'_>) -> Layer<'_> {
    let mut layer: Layer<'_> = table
        .into_iter()
        .map(|(key, value)| (Spanned::new(key.span(), key.get_ref().to_string()), value))
        .collect();
    layer.sort_by_key(|(key, _)| key.span().start);
    layer
}

/// Writes a value at a dotted path, with which `key` ends, making tables on the way.
fn write<'i>(
    table: &mut DeTable<'i>,
    key: &Spanned<String>,
    path: &str,
    value: Override<'i>,
    source: &Source,
) -> Result<(), RecipeError> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    if head.trim().is_empty() {
        let message = format!("`{}` is not a dotted key", key.get_ref());
        return Err(source.at(Some(key.span()), message, "write it as section.key".into()));
    }
    let name = Spanned::new(key.span(), head.to_string().into());
    let span = value.span();
    let settings = match (rest, value.into_inner()) {
        (Some(rest), value) => vec![(key.clone(), rest.to_string(), Spanned::new(span.clone(), value))],
        (None, DeValue::Table(table)) => {
            layer(table).into_iter().map(|(key, value)| (key.clone(), key.into_inner(), value)).collect()
        }
        (None, value) => {
            table.remove(head);
            table.insert(name, Spanned::new(span, value));
            return Ok(());
        }
    };
    if !table.contains_key(head) {
        let span = if rest.is_some() { key.span() } else { span };
        table.insert(name, Spanned::new(span, DeValue::Table(DeTable::new())));
    }
    let Some(DeValue::Table(inner)) = table.get_mut(head).map(Spanned::get_mut) else {
        return Err(goes_through(key.get_ref(), head, key.span(), source));
    };
    settings.into_iter().try_for_each(|(key, path, value)| write(inner, &key, &path, value, source))
}

/// Lays nested settings over the section at `path`, or over the whole recipe.
fn merge<'i>(
    table: &mut DeTable<'i>,
    path: &str,
    settings: DeTable<'i>,
    source: &Source,
) -> Result<(), RecipeError> {
    for (name, value) in settings {
        let path =
            if path.is_empty() { name.get_ref().to_string() } else { format!("{path}.{}", name.get_ref()) };
        let (place, span) = (name.span(), value.span());
        // Removed first: a map that has a key keeps the place of the one that it has.
        let (name, section) = match (value.into_inner(), table.remove_entry(name.get_ref().as_ref())) {
            (DeValue::Table(own), Some((old_name, old))) => {
                let old_span = old.span();
                let DeValue::Table(mut section) = old.into_inner() else {
                    let key = own.keys().next().map_or(String::new(), |key| format!(".{}", key.get_ref()));
                    return Err(goes_through(&format!("{path}{key}"), name.get_ref(), place, source));
                };
                tagged::forget(&mut section, &path, &own);
                // What is missing in a section that is replaced is missing where it is replaced.
                let (name, span) = if section.is_empty() { (name, span) } else { (old_name, old_span) };
                merge(&mut section, &path, own, source)?;
                (name, Spanned::new(span, DeValue::Table(section)))
            }
            (value, _) => (name, Spanned::new(span, value)),
        };
        table.insert(name, section);
    }
    Ok(())
}

/// Puts a value in the place of all that a dotted path has, making tables on the way: what is the whole recipe's has no kinds.
///
/// # Errors
/// A path that goes through a value.
pub fn put<'i>(
    table: &mut DeTable<'i>,
    key: &Spanned<String>,
    path: &str,
    value: Override<'i>,
    source: &Source,
) -> Result<(), RecipeError> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    let name = Spanned::new(key.span(), head.to_string().into());
    let Some(rest) = rest else {
        table.remove(head);
        table.insert(name, value);
        return Ok(());
    };
    if !table.contains_key(head) {
        table.insert(name, Spanned::new(key.span(), DeValue::Table(DeTable::new())));
    }
    match table.get_mut(head).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(inner, key, rest, value, source),
        _ => Err(goes_through(key.get_ref(), head, key.span(), source)),
    }
}

/// Whether a setting changes the value of a dotted key.
pub fn writes((name, value): &(Spanned<String>, Override<'_>), key: &str) -> bool {
    match (key.strip_prefix(name.get_ref().as_str()), value.get_ref()) {
        (Some(""), _) => true,
        (Some(rest), DeValue::Table(table)) => {
            rest.strip_prefix('.').is_some_and(|rest| tagged::find(table, rest).is_some())
        }
        _ => false,
    }
}

fn goes_through(key: &str, head: &str, place: Range<usize>, source: &Source) -> RecipeError {
    source.at(
        Some(place),
        format!("`{key}` goes through `{head}`, which is not a table"),
        "write the key as section.key".into(),
    )
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
