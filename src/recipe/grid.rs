//! `[grid]`: which keys take which values.
//!
//! `[grid]` is a cartesian product over dotted keys. `[[grid]]`, a list of such tables, is the
//! union of their products: explicit rows, each of which may still sweep an axis.

use std::ops::Range;

use itertools::Itertools;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::diagnostic::{RecipeError, Source};
use super::report::{Stage, require_name};
use crate::keys::is_within;

/// A grid larger than this is a slip: at one second a cell it runs for three hours.
pub const MAX_CELLS: usize = 10_000;

/// A value of the grid with its place in the file.
pub type Override<'i> = Spanned<DeValue<'i>>;
/// One axis: a dotted key and its values.
pub type Axis<'i> = (Spanned<String>, Vec<Override<'i>>);
/// Settings that are written together, by dotted keys: the values that one cell takes from the grid, a rung of a ladder.
pub type Layer<'i> = Vec<(Spanned<String>, Override<'i>)>;

/// The key of a grid's table that names its cells.
const NAME: &str = "name";

/// What tells a cell from others.
#[derive(Default)]
pub struct Variant<'i> {
    /// What it sets beside what all cells have, in the order in which it is laid over the recipe.
    pub layers: Vec<Layer<'i>>,
    /// Its name in tables and charts; empty without one.
    pub name: String,
    /// Its rung of a ladder.
    pub stage: Option<Stage>,
}

/// Expands the grid; without one there is a single cell that overrides nothing.
///
/// # Errors
/// An axis without values, a grid of another type, a name that no table can show, or more than [`MAX_CELLS`] cells.
pub fn expand<'i>(
    grid: Option<(Spanned<DeString<'i>>, Spanned<DeValue<'i>>)>,
    source: &Source,
) -> Result<Vec<Variant<'i>>, RecipeError> {
    let Some((name, grid)) = grid else { return Ok(vec![Variant::default()]) };
    let span = name.span();
    let tables = tables(grid, source)?;
    let (mut names, mut products) = (Vec::new(), Vec::new());
    for mut table in tables {
        names.push(cell_name(&mut table, source)?);
        products.push(axes(table, source)?);
    }

    check_size(&products, span, source)?;
    let named = names.iter().zip(&products).flat_map(|(name, axes)| {
        let variant = |layer| Variant { layers: vec![layer], name: name.clone(), stage: None };
        product(axes).into_iter().map(variant)
    });
    Ok(named.collect())
}

/// The tables of a grid: `[grid]` is one, `[[grid]]` a list.
///
/// # Errors
/// A grid of another type.
fn tables<'i>(grid: Spanned<DeValue<'i>>, source: &Source) -> Result<Vec<DeTable<'i>>, RecipeError> {
    let wrong_type = |span| {
        source.at(
            Some(span),
            "`grid` must be a table of keys and value lists, or a list of such tables".into(),
            "write [grid] followed by lines such as \"train.batch_size\" = [1, 2, 4]".into(),
        )
    };
    let span = grid.span();
    match grid.into_inner() {
        DeValue::Table(table) => Ok(vec![table]),
        DeValue::Array(items) => items
            .into_iter()
            .map(|item| {
                let span = item.span();
                match item.into_inner() {
                    DeValue::Table(table) => Ok(table),
                    _ => Err(wrong_type(span)),
                }
            })
            .collect(),
        _ => Err(wrong_type(span)),
    }
}

/// A grid has cells, and no more than [`MAX_CELLS`].
fn check_size(products: &[Vec<Axis<'_>>], span: Range<usize>, source: &Source) -> Result<(), RecipeError> {
    let total = products
        .iter()
        .map(|axes| axes.iter().fold(1usize, |n, (_, values)| n.saturating_mul(values.len())))
        .fold(0usize, usize::saturating_add);
    if total > MAX_CELLS {
        let sizes: Vec<String> = products
            .iter()
            .flatten()
            .filter(|(_, values)| values.len() > 1)
            .map(|(key, values)| format!("{} has {}", key.get_ref(), values.len()))
            .collect();
        return Err(source.at(
            Some(span),
            format!("the grid has {total} cells; the most is {MAX_CELLS}"),
            format!("shorten an axis: {}", sizes.join(", ")),
        ));
    }
    if total == 0 {
        return Err(source.at(
            Some(span),
            "the grid has no cells".into(),
            "add a table with [[grid]], or remove the key".into(),
        ));
    }
    Ok(())
}

/// Takes the name of a table's cells out of it.
///
/// # Errors
/// A name that is no text of one line.
fn cell_name(table: &mut DeTable<'_>, source: &Source) -> Result<String, RecipeError> {
    let Some((key, name)) = table.remove_entry(NAME) else { return Ok(String::new()) };
    let text = name.get_ref().as_str().unwrap_or_default().to_string();
    require_name(&text, Some(key.span()), source)?;
    Ok(text)
}

/// The axes of one table; nested tables are the same as dotted keys.
///
/// # Errors
/// A key that is not dotted, or an axis without values.
pub fn axes<'i>(table: DeTable<'i>, source: &Source) -> Result<Vec<Axis<'i>>, RecipeError> {
    let mut axes = Vec::new();
    collect("", table, &mut axes, source)?;
    // BTreeMap order is alphabetical; the order as typed reads better in a table.
    axes.sort_by_key(|(key, _)| key.span().start);
    for (i, (outer, _)) in axes.iter().enumerate() {
        let inner = axes[..i].iter().find(|(inner, _)| is_within(inner.get_ref(), outer.get_ref()));
        if let Some((inner, _)) = inner {
            return Err(source.at(
                Some(outer.span()),
                format!(
                    "`{}` takes the place of `{}`, which stands before it",
                    outer.get_ref(),
                    inner.get_ref()
                ),
                "remove one of them, or write the one with the longer key last".into(),
            ));
        }
    }
    Ok(axes)
}

/// The settings of a cell that others do not have, as the recipe writes them, with their places.
pub fn apart(layer: &Layer<'_>, others: &[&Layer<'_>], source: &Source) -> Vec<(Range<usize>, String)> {
    let written = |value: &Override<'_>| source.text.get(value.span()).unwrap_or_default();
    let has = |other: &Layer<'_>, key: &str, value: &str| {
        other.iter().any(|(name, own)| name.get_ref() == key && written(own) == value)
    };
    let of = layer.iter().map(|(key, value)| (key.get_ref(), value.span(), written(value)));
    of.filter(|(key, _, value)| !others.iter().all(|other| has(other, key, value)))
        .map(|(key, span, value)| (span, format!("{key} = {value}")))
        .collect()
}

fn collect<'i>(
    prefix: &str,
    table: DeTable<'i>,
    axes: &mut Vec<Axis<'i>>,
    source: &Source,
) -> Result<(), RecipeError> {
    for (key, value) in table {
        let path =
            if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        if path.split('.').any(|part| part.trim().is_empty()) {
            return Err(source.at(
                Some(key.span()),
                format!("`{path}` is not a dotted key"),
                "write it as section.key".into(),
            ));
        }
        let span = value.span();
        let values: Vec<Override<'i>> = match value.into_inner() {
            DeValue::Table(inner) if !inner.is_empty() => {
                collect(&path, inner, axes, source)?;
                continue;
            }
            DeValue::Array(values) => values.into_iter().collect(),
            single => vec![Spanned::new(span.clone(), single)],
        };
        if values.is_empty() {
            return Err(source.at(
                Some(span),
                format!("the grid axis `{path}` has no values"),
                "give it at least one value, or remove the axis".into(),
            ));
        }
        axes.push((Spanned::new(key.span(), path), values));
    }
    Ok(())
}

/// All combinations; the last axis varies fastest.
fn product<'i>(axes: &[Axis<'i>]) -> Vec<Layer<'i>> {
    let values = |(key, values): &'_ Axis<'i>| -> Vec<_> {
        values.iter().map(|value| (key.clone(), value.clone())).collect()
    };
    axes.iter().map(values).multi_cartesian_product().collect()
}
