//! Short names of settings: what a method and a shape are called in tables and charts.

use std::path::Path;

use itertools::Itertools;
use serde_json::Value;

use super::table::Comparison;
use crate::ops::Operator;
use crate::recipe::keys::{self, is_operator};
use crate::words::key::{Role, When};
use crate::words::text;
use crate::words::values::Values;
use crate::words::{Bytes, Key, Settings};

/// What a size is called: `train.seq_len` → `sequence length`.
pub fn size_name(key: &str) -> String {
    keys::find(key).map_or_else(|| key.into(), |entry| entry.key.label())
}

/// What a size is; `None` where a cell has none of that kind.
pub fn size_value(key: &str, settings: &Settings) -> Option<String> {
    Some(shown(keys::find(key)?.key, settings.get(key)?))
}

/// A value in the unit in which it is read.
fn shown(key: &Key, value: &Value) -> String {
    match (key.values, value) {
        (Values::Bytes, _) => value.as_u64().map_or_else(|| text::value(value), |n| Bytes(n).to_string()),
        (Values::Scale, _) => power_of_two(value.as_f64().unwrap_or_default()),
        (Values::Path(_), Value::String(path)) => file_name(path),
        (Values::Words(_), _) => text::value(value).replace('_', " "),
        _ => text::value(value),
    }
}

/// The last part of a path; other text as it is.
fn file_name(text: &str) -> String {
    Path::new(text).file_name().map_or_else(|| text.into(), |name| name.to_string_lossy().into_owned())
}

/// What the sizes in labels mean; `None` where the label says it itself.
pub fn size_note(comparison: &Comparison) -> Option<String> {
    let keys = &comparison.label_sizes;
    match (comparison.shapes.as_slice(), keys.len()) {
        ([one], 2..) => Some(format!("sizes of every cell: {} ({})", one.label, size_legend(keys))),
        ([one], 1) => Some(format!("every cell: {}", one.label)),
        (_, 2..) => Some(format!("sizes: {}", size_legend(keys))),
        _ => None,
    }
}

/// `size_name` of each, batch and sequence joined as they are in a label.
fn size_legend(keys: &[String]) -> String {
    join_sizes(keys, keys.iter().map(|key| size_name(key)).collect(), " × ")
}

/// `16×128, 512`; a single size has its name before it: `batch size 16`.
pub fn shape_label(keys: &[String], settings: &Settings) -> String {
    let value = |key: &String| match (keys::find(key), settings.get(key)) {
        (Some(entry), Some(value)) if keys.len() > 1 => in_words(entry.key, value),
        (Some(entry), Some(value)) => shown(entry.key, value),
        (entry, _) => entry.and_then(|entry| entry.key.without).unwrap_or("none").into(),
    };
    match keys {
        [one] => format!("{} {}", size_name(one), value(one)),
        _ => join_sizes(keys, keys.iter().map(value).collect(), "×"),
    }
}

fn join_sizes(keys: &[String], mut parts: Vec<String>, times: &str) -> String {
    let joined = keys.first().and_then(|key| keys::find(key)?.key.times);
    if joined.is_some() && joined == keys.get(1).map(String::as_str) {
        let second = parts.remove(1);
        parts[0] = format!("{}{times}{second}", parts[0]);
    }
    parts.join(", ")
}

/// What a method is called, with all of its keys.
pub fn method_label(keys: &[String], settings: &Settings) -> String {
    label(keys.iter().collect(), keys, settings)
}

/// The same without keys that have no effect and defaults that go without saying: our own operator is the rule, and
/// nothing moves to the host or is fused by itself. Empty when nothing is left.
pub fn short_method_label(keys: &[String], settings: &Settings) -> String {
    let shown = |key: &&String| match keys::find(key).map(|entry| entry.key) {
        Some(of) => {
            let tacit = of.tacit && settings.get(*key) == of.default.value().as_ref();
            !tacit && !of.moot.is_some_and(|when| holds(when, settings))
        }
        // All operators as one.
        None => settings.get(*key) != serde_json::to_value(Operator::default()).ok().as_ref(),
    };
    label(keys.iter().filter(shown).collect(), keys, settings)
}

fn holds((key, value): When, settings: &Settings) -> bool {
    settings.get(key).and_then(Value::as_str) == Some(value)
}

/// The shown of a method's keys. Operators go by their names, `plain norm`; one word serves all of
/// them where it is true of all, and the only one of a network.
fn label(mut shown: Vec<&String>, keys: &[String], settings: &Settings) -> String {
    // What decides which other keys there are comes before them.
    shown.sort_by_key(|key| {
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        (section, keys::find(key).is_none_or(|entry| entry.key.values != Values::Kinds))
    });
    let value = |key: &String| settings.get(key);
    let operators: Vec<&String> = shown.iter().copied().filter(|key| is_operator(key)).collect();
    let swept = keys.iter().filter(|key| is_operator(key)).count();
    let alike = operators.windows(2).all(|pair| value(pair[0]) == value(pair[1]));
    let together = swept > 1 && alike && operators.len() == swept;
    let part = |key: &String| match (keys::find(key), value(key)) {
        (None, way) => Some(format!("{} operators", text::value(way?))),
        (Some(_), Some(way)) if together && is_operator(key) => {
            (operators[0] == key).then(|| format!("{} operators", text::value(way)))
        }
        (Some(entry), Some(way)) if is_operator(key) => {
            let alone = entry.key.alone.is_some_and(|when| holds(when, settings));
            let name = if alone { String::new() } else { format!(" {}", entry.key.label()) };
            Some(text::value(way) + &name)
        }
        (Some(entry), Some(value)) => Some(in_words(entry.key, value)),
        (Some(entry), None) => entry.key.without.map(String::from),
    };
    shown.into_iter().filter_map(part).join(", ")
}

/// `evaluated every 25 steps`, `lr 0.001`, `no pinned`; the words of a choice are enough.
fn in_words(key: &Key, value: &Value) -> String {
    let (plain, shown) = (text::value(value), shown(key, value));
    let fits = |(of, _): &&(&str, &str)| of.is_empty() || *of == plain;
    match (key.reads.iter().find(fits), value) {
        (Some((_, words)), _) => words.replace("{}", &shown),
        (None, Value::Bool(true)) => key.label(),
        (None, Value::Bool(false)) => format!("no {}", key.label()),
        (None, Value::Number(_)) if key.values != Values::Scale && key.role == Role::Method => {
            format!("{} {shown}", key.label())
        }
        (None, _) => shown,
    }
}

/// `2^16`; another number as it is.
pub fn power_of_two(value: f64) -> String {
    let exponent = value.log2();
    if exponent.fract() == 0.0 { format!("2^{exponent}") } else { text::significant(value) }
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
