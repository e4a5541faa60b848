//! From a table of TOML, or from the JSON of a row, to a [`Cell`].

use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::cell::Cell;
use super::diagnostic::{RecipeError, Source};
use super::grid::Layer;
use super::{NOT_OF_CELLS, ON_CPU, complete, head, home, keys, overlay, rules, tagged};
use crate::data::Found;
use crate::device::Target;
use crate::keys::{Rule, Section};

/// TOML has no null: such a key is left out.
pub fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let present = map.iter().filter(|(_, value)| !value.is_null());
            present.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        other => other.clone(),
    }
}

impl Cell {
    /// The inverse of [`Cell::to_json`], also of cells that were written without defaults. It is read as a
    /// recipe is.
    ///
    /// # Errors
    /// When `value` is no cell of this version, or names weights that are not here without their sizes.
    pub fn from_json(value: &Value) -> Result<Self, RecipeError> {
        let mut source = Source { path: "a cell".into(), text: String::new() };
        let table = toml::Table::try_from(without_nulls(value))
            .map_err(|e| source.plain(&format!("it is not a table of settings: {e}"), ""))?;
        source.text = table.to_string();
        let root = DeTable::parse(&source.text).map_err(|e| source.toml_error(&e, &[]))?;
        typed(root, &source)
    }
}

/// A cell as typed, unchecked.
fn typed<'i>(mut root: Spanned<DeTable<'i>>, source: &Source) -> Result<Cell, RecipeError> {
    home::expand(root.get_mut());
    complete::complete(root.get_mut(), source)?;
    let model = root.get_ref().get("model").map(|model| (model.span(), model.get_ref().as_table().cloned()));
    tagged::tag(&mut root, source)?;
    Cell::deserialize(Deserializer::from(root)).map_err(|e| {
        // Only the top level also knows title, question, grid and report.
        let top = e.message().contains("`train`") && e.message().contains("`measure`");
        let others = if top { [&NOT_OF_CELLS[..], &[ON_CPU]].concat() } else { Vec::new() };
        let error = source.toml_error(&e, &others);
        // What does not go together in [model] has the whole section as its place.
        let model = model.filter(|(span, _)| e.span().as_ref() == Some(span));
        let place = model.and_then(|(_, model)| meant(&model?, e.message()));
        place.into_iter().fold(error, RecipeError::moved)
    })
}

/// The place of the key of `[model]` that an error begins with, or else of the last one that it quotes.
fn meant(model: &DeTable<'_>, message: &str) -> Option<Range<usize>> {
    let begins = |key: &str| message.strip_prefix(key).is_some_and(|rest| rest.starts_with(' '));
    let quotes = |key: &str, value: &DeValue<'_>| {
        let names = message.contains(&format!(" {key} = "));
        names || key != "kind" && value.as_str().is_some_and(|value| message.contains(value))
    };
    // What has its default is written nowhere.
    let written = || model.iter().filter(|(_, value)| !value.span().is_empty());
    let first = written().find(|(key, _)| begins(key.get_ref()));
    let last = || {
        let quoted = written().filter(|(key, value)| quotes(key.get_ref(), value.get_ref()));
        quoted.max_by_key(|(_, value)| value.span().start)
    };
    first.or_else(last).map(|(_, value)| value.span())
}

/// Builds and checks one cell: the recipe's own keys with the settings of one combination of the grid, or of a ladder's
/// rungs, laid over them one layer after the other.
/// Places in the file survive the merge, so an error points at the grid when the grid is at fault. Without a
/// `target` it stays open where the cell runs. With the cell comes the reason why the target cannot run it, where
/// hardware alone is missing there.
pub(super) fn from_table<'i>(
    mut root: Spanned<DeTable<'i>>,
    layers: &[Layer<'i>],
    source: &Source,
    target: Option<(&Target, &Found)>,
) -> Result<(Cell, Option<RecipeError>), RecipeError> {
    for layer in layers {
        if let Some((key, _)) = layer.iter().find(|(key, _)| NOT_OF_CELLS.contains(&head(key.get_ref()))) {
            let message = format!("`{}` is of the whole recipe: no cell has one of its own", key.get_ref());
            return Err(source.at(Some(key.span()), message, "write it outside of grids and ladders".into()));
        }
        overlay::lay(root.get_mut(), layer, source)?;
    }
    let written = root.clone();
    let place = |key: &str| tagged::find(written.get_ref(), key).map(Spanned::span);
    let mut cell = typed(root, source).map_err(|error| explained(error, layers, place))?;
    let graph = tagged::find(written.get_ref(), "train.graph");
    cell.train.graph_is_open = graph.is_none_or(|graph| graph.get_ref().as_str().is_some());
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
    if let Some((target, _)) = target {
        let found = target.resolve(&cell.device).and_then(|device| {
            let checked = rules::on_device(&cell, device, target, |key| place(key).is_some());
            cell.device = device.to_string();
            cell.capability = target.capability(device);
            checked
        });
        match found {
            Err(rule) if rule.elsewhere => missing = Some(rule_error(rule)),
            found => found.map_err(rule_error)?,
        }
    }
    rules::check(&cell, |key| place(key).is_some()).map_err(rule_error)?;
    // Where the cell cannot run its files need not be.
    if let Some((_, found)) = target.filter(|_| missing.is_none()) {
        rules::files(&cell, found).map_err(rule_error)?;
    }
    Ok((cell, missing))
}

/// The error, with the reason why a section lacks a key that the recipe's own has.
fn explained(
    error: RecipeError,
    layers: &[Layer<'_>],
    place: impl Fn(&str) -> Option<Range<usize>>,
) -> RecipeError {
    let replaces = |section: &&Section| {
        let kind = section.kind.map(|kind| section.path_of(kind.key));
        kind.is_some_and(|kind| layers.iter().flatten().any(|setting| overlay::writes(setting, &kind)))
            && place(section.path).is_some_and(|place| error.is_at(&place))
    };
    let section = keys::sections().find(replaces).filter(|_| error.is_of_missing_key());
    let why = section.and_then(|section| {
        let kind = section.kind?.key;
        Some(format!(
            "(A setting with `{kind}` replaces all of `{}`: write its other keys beside it, or they have their defaults.)",
            section.path
        ))
    });
    why.into_iter().fold(error, |error, why| error.and_help(&why))
}
