//! Short names of settings: the labels of methods and shapes in tables and charts.

use std::path::Path;

use serde_json::Value;

use super::prelude::*;
use crate::common::text;
use crate::keys::values::Values;
use crate::keys::{Key, is_within};
use crate::recipe::keys::{self, is_default};

/// A key whose value is resolved: `auto` is the GPU that there is.
pub const DEVICE: &str = "device";

/// The name of a size: `train.seq_len` → `sequence length`.
pub fn size_name(key: &str) -> String {
    keys::find(key).map_or_else(|| key.into(), |entry| entry.key.label())
}

/// The value of a size; `None` where a cell has none.
pub fn size_value(key: &str, settings: &Settings) -> Option<String> {
    let value = settings.get(key)?;
    Some(keys::find(key).map_or_else(|| text::value(value), |entry| shown(entry.key, value)))
}

/// A value in the unit in which it is read.
fn shown(key: &Key, value: &Value) -> String {
    match (key.values, value) {
        (Values::Scale, _) => Unit::PowerOfTwo.write(value.as_f64().unwrap_or_default()),
        (Values::Path(_), Value::String(path)) => file_name(path),
        (Values::Words(_), _) => text::value(value).replace('_', " "),
        _ => key.shown(value),
    }
}

/// The last part of a path; other text as it is.
fn file_name(text: &str) -> String {
    Path::new(text).file_name().map_or_else(|| text.into(), |name| name.to_string_lossy().into_owned())
}

/// `batch size × sequence length, hidden size`
pub fn size_legend(keys: &[String]) -> String {
    let names: Vec<String> = keys.iter().map(|key| size_name(key)).collect();
    [&[names[..2].join(" × ")], &names[2..]].concat().join(", ")
}

/// Whether the first two of the sizes are joined by ×: batch size and sequence length.
pub fn is_product(keys: &[String]) -> bool {
    let times = keys.first().and_then(|key| keys::find(key)?.key.times);
    times.is_some() && times == keys.get(1).map(String::as_str)
}

/// The label in a table, which has a note of the sizes below it: `16×128, 512`; else [`shape_name`].
pub fn shape_label(keys: &[String], settings: &Settings) -> String {
    if is_product(keys) { shape(keys, settings, false) } else { shape_name(keys, settings) }
}

/// `16×128, hidden size 512`; `batch size 16`; `batch size 4, qwen2.5-0.5b`: numbers, and values that stand alone, follow
/// their names.
pub fn shape_name(keys: &[String], settings: &Settings) -> String {
    shape(keys, settings, true)
}

/// The sizes of a shape, the first two joined by × where they are a product. `named`: whether the name of a key stands before
/// a number.
fn shape(keys: &[String], settings: &Settings, named: bool) -> String {
    let value = |key: &String| size_value(key, settings).unwrap_or_else(|| "none".into());
    let text = |key: &String| {
        let is_named = keys.len() == 1 || named && settings.get(key).is_some_and(Value::is_number);
        if is_named { format!("{} {}", size_name(key), value(key)) } else { value(key) }
    };
    let (product, rest) = keys.split_at(if is_product(keys) { 2 } else { 0 });
    let product = (!product.is_empty()).then(|| product.iter().map(value).join("×"));
    product.into_iter().chain(rest.iter().map(text)).join(", ")
}

/// A method with the name that the recipe gives to its cells; empty without one.
pub struct Named<'a> {
    pub settings: &'a Settings,
    pub name: &'a str,
}

/// The label of each method: its name, else `key value` for each key in which methods differ and that has not its default; where
/// there is none, for the first of them, those of the baseline before others. Behind labels that would be the same stands what
/// differs.
pub fn methods(keys: &[String], methods: &[Named], of_baseline: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut first, rest): (Vec<String>, Vec<String>) =
        keys.iter().cloned().partition(|key| of_baseline(key));
    first.extend(rest);
    let short: Vec<String> = methods.iter().map(|method| short_label(keys, &first, method)).collect();
    let apart = |(label, own): (&String, &Named)| {
        let alike = short.iter().zip(methods).filter(|(other, _)| *other == label).map(|(_, of)| of.settings);
        let differs = |key: &&String| !alike.clone().map(|settings| settings.get(*key)).all_equal();
        let mut more = keys.iter().filter(differs).filter_map(|key| pair(key, own.settings, full_value));
        let more = more.join(", ");
        if more.is_empty() { label.clone() } else { format!("{label} ({more})") }
    };
    short.iter().zip(methods).map(apart).collect()
}

/// A method that is alone is called by what it trains, or by its precision.
fn short_label(keys: &[String], first: &[String], Named { settings, name }: &Named) -> String {
    if !name.is_empty() {
        return (*name).into();
    }
    let label = |key: &str| pair(key, settings, size_value);
    let is_usual = |key: &str| {
        let is_gpu = |value: &Value| key == DEVICE && *value != "cpu";
        settings.get(key).is_none_or(|value| is_default(key, value, settings) || is_gpu(value))
    };
    // How it was measured is no method.
    let unusual = keys.iter().filter(|key| !is_usual(key) && !is_within(key, "measure"));
    let unusual = unusual.filter_map(|key| label(key)).join(", ");
    if !unusual.is_empty() {
        return unusual;
    }
    let is_tuned = settings.get("tuning.method").is_some_and(|method| method != "full");
    let alone = if is_tuned { "tuning.method" } else { "precision.compute" };
    // A word says more than that something is off.
    let is_switch = |key: &&String| settings.get(*key).is_some_and(Value::is_boolean);
    let (switches, words): (Vec<&String>, Vec<&String>) = first.iter().partition(is_switch);
    let first = words.into_iter().chain(switches).find_map(|key| label(key));
    let lacks = || keys.first().map(|key| format!("no {}", size_name(key)));
    first.or_else(lacks).or_else(|| label(alone)).unwrap_or_default()
}

/// All of these keys that a cell has.
pub fn in_full(keys: &[String], settings: &Settings) -> String {
    keys.iter().filter_map(|key| pair(key, settings, size_value)).join(", ")
}

/// `level 0.5`, `graph`, `no graph`.
fn pair(key: &str, settings: &Settings, shown: impl Fn(&str, &Settings) -> Option<String>) -> Option<String> {
    let name = size_name(key);
    Some(match settings.get(key)? {
        Value::Bool(true) => name,
        Value::Bool(false) => format!("no {name}"),
        _ => format!("{name} {}", shown(key, settings)?),
    })
}

/// The value with all of a path.
fn full_value(key: &str, settings: &Settings) -> Option<String> {
    match settings.get(key)? {
        Value::String(text) => Some(text.clone()),
        _ => size_value(key, settings),
    }
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
