//! From a table of TOML, or from the JSON of a row, to a [`Cell`].

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::cell::Cell;
use super::diagnostic::{RecipeError, Source};
use super::grid::Override;
use super::{NOT_OF_CELLS, complete, rules, tagged};
use crate::device::Target;
use crate::words::Rule;

/// TOML has no null: such a key is left out.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let present = map.iter().filter(|(_, value)| !value.is_null());
            present.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        other => other.clone(),
    }
}

/// A cell that was written by [`Cell::to_json`], unchecked.
pub(super) fn from_json(value: &Value) -> Result<Cell, RecipeError> {
    let mut source = Source { path: "a cell".into(), text: String::new() };
    let table = toml::Table::try_from(without_nulls(value))
        .map_err(|e| source.plain(&format!("it is not a table of settings: {e}"), ""))?;
    source.text = table.to_string();
    let root = DeTable::parse(&source.text).map_err(|e| source.toml_error(&e, &[]))?;
    typed(root, &source)
}

/// A cell as typed, unchecked.
fn typed<'i>(mut root: Spanned<DeTable<'i>>, source: &Source) -> Result<Cell, RecipeError> {
    complete::complete(root.get_mut(), source)?;
    tagged::tag(&mut root, source)?;
    Cell::deserialize(Deserializer::from(root)).map_err(|e| {
        // Only the top level also knows title, question, grid and report.
        let top = e.message().contains("`train`") && e.message().contains("`measure`");
        source.toml_error(&e, if top { &NOT_OF_CELLS } else { &[] })
    })
}

/// Builds and checks one cell: the recipe's own keys, overridden by one combination of the grid.
/// Places in the file survive the merge, so an error points at the grid when the grid is at fault. Without a
/// `target` it stays open where the cell runs. With the cell comes the reason why the target cannot run it, where
/// hardware alone is missing there.
pub(super) fn from_table<'i>(
    mut root: Spanned<DeTable<'i>>,
    overrides: &[(Spanned<String>, Override<'i>)],
    source: &Source,
    target: Option<&Target>,
) -> Result<(Cell, Option<RecipeError>), RecipeError> {
    for (key, value) in overrides {
        if NOT_OF_CELLS.contains(&key.get_ref().split('.').next().unwrap_or_default()) {
            let message = format!("`{}` is of the whole recipe: no cell has one of its own", key.get_ref());
            return Err(source.at(Some(key.span()), message, "write it outside of grids and ladders".into()));
        }
        set(root.get_mut(), key, key.get_ref(), value, source)?;
    }
    let written = root.clone();
    let mut cell = typed(root, source)?;
    let place = |key: &str| tagged::find(written.get_ref(), key).map(Spanned::span);
    let rule_error = |rule: Rule| {
        let span = rule.keys.iter().find_map(|key| place(key));
        source.at(span, rule.message, rule.help)
    };
    if let Some(folder) = cell.model.weights_folder()
        && place("data.tokenizer").is_none()
    {
        cell.data.take_tokenizer_of(folder, place("data.vocab_size").is_some()).map_err(rule_error)?;
    }
    let mut missing = None;
    if let Some(target) = target {
        let found = target.resolve(&cell.device).and_then(|device| {
            let checked = rules::on_device(&cell, device, target, |key| place(key).is_some());
            cell.device = device.to_string();
            checked
        });
        match found {
            Err(rule) if rule.elsewhere => missing = Some(rule_error(rule)),
            found => found.map_err(rule_error)?,
        }
    }
    rules::check(&cell, |key| place(key).is_some()).map_err(rule_error)?;
    // Where the cell cannot run its files need not be.
    if target.is_some() && missing.is_none() {
        rules::files(&cell).map_err(rule_error)?;
    }
    Ok((cell, missing))
}

/// Sets a dotted path, making tables on the way.
pub(super) fn set<'i>(
    table: &mut DeTable<'i>,
    key: &Spanned<String>,
    path: &str,
    value: &Override<'i>,
    source: &Source,
) -> Result<(), RecipeError> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
    let name = Spanned::new(key.span(), head.to_string().into());
    let Some(rest) = rest else {
        table.remove(head);
        table.insert(name, value.clone());
        return Ok(());
    };
    if !table.contains_key(head) {
        table.insert(name, Spanned::new(key.span(), DeValue::Table(DeTable::new())));
    }
    match table.get_mut(head).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => set(inner, key, rest, value, source),
        _ => Err(source.at(
            Some(key.span()),
            format!("`{}` goes through `{head}`, which is not a table", key.get_ref()),
            "write the key as section.key".into(),
        )),
    }
}
