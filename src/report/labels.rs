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
    let value = settings.get(key)?;
    Some(keys::find(key).map_or_else(|| text::value(value), |entry| shown(entry.key, value)))
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

/// What bare numbers in labels mean; `None` where labels say it themselves.
pub fn size_note(comparison: &Comparison) -> Option<String> {
    let keys = &comparison.label_sizes;
    let legend = is_product(keys).then(|| size_legend(keys));
    match (comparison.shapes.as_slice(), legend) {
        ([one], Some(legend)) => Some(format!("sizes of every cell: {} ({legend})", one.label)),
        ([one], None) if !keys.is_empty() => Some(format!("every cell: {}", one.label)),
        (_, legend) => legend.map(|legend| format!("sizes: {legend}")),
    }
}

/// `batch size × sequence length, hidden size`
fn size_legend(keys: &[String]) -> String {
    let names: Vec<String> = keys.iter().map(|key| size_name(key)).collect();
    [&[names[..2].join(" × ")], &names[2..]].concat().join(", ")
}

/// Whether the first two of the sizes are read as one: batch size and sequence length.
fn is_product(keys: &[String]) -> bool {
    let times = keys.first().and_then(|key| keys::find(key)?.key.times);
    times.is_some() && times == keys.get(1).map(String::as_str)
}

/// In a table, below which [`size_note`] stands: `16×128, 512`; else as [`shape_name`].
pub fn shape_label(keys: &[String], settings: &Settings) -> String {
    if !is_product(keys) {
        return shape_name(keys, settings);
    }
    let value = |key: &String| match (keys::find(key), settings.get(key)) {
        (Some(entry), Some(value)) => in_words(entry.key, value),
        (None, Some(value)) => text::value(value),
        (entry, None) => without(entry.map(|entry| entry.key)),
    };
    let rest = keys[2..].iter().map(value);
    std::iter::once(product(keys, settings)).chain(rest).join(", ")
}

/// `16×128, hidden size 512`; `batch size 16`; `batch size 4, qwen2.5-0.5b`: numbers have their names before them, and so
/// has what stands alone.
pub fn shape_name(keys: &[String], settings: &Settings) -> String {
    let alone = keys.len() == 1;
    let named = |key: &String| {
        let name = |text: String| format!("{} {text}", size_name(key));
        match (keys::find(key).map(|entry| entry.key), settings.get(key)) {
            (Some(entry), Some(value)) if alone || value.is_number() && entry.reads.is_empty() => {
                name(shown(entry, value))
            }
            (Some(entry), Some(value)) => in_words(entry, value),
            (None, Some(value)) if alone => name(text::value(value)),
            (None, Some(value)) => text::value(value),
            (entry, None) if alone => name(without(entry)),
            (entry, None) => without(entry),
        }
    };
    match is_product(keys) {
        true => std::iter::once(product(keys, settings)).chain(keys[2..].iter().map(named)).join(", "),
        false => keys.iter().map(named).join(", "),
    }
}

fn product(keys: &[String], settings: &Settings) -> String {
    keys[..2].iter().map(|key| size_value(key, settings).unwrap_or_else(|| "none".into())).join("×")
}

/// What a size is called that a cell does not have.
fn without(key: Option<&Key>) -> String {
    key.and_then(|key| key.without).unwrap_or("none").into()
}

/// What a method is called, with all of its keys.
pub fn method_label(keys: &[String], settings: &Settings) -> String {
    label(keys.iter().collect(), keys, settings)
}

/// Of each method the shortest label that tells it apart from the others, and what goes without saying in them: what more
/// than half of the methods have in common.
pub fn methods(keys: &[String], methods: &[&Settings]) -> (Vec<String>, String) {
    if keys.is_empty() {
        let key = ["checkpoint.level".to_string()];
        return (methods.iter().map(|s| method_label(&key, s)).collect(), String::new());
    }
    let holders = |key: &String, s: &Settings| methods.iter().filter(|m| m.get(key) == s.get(key)).count();
    let common = |key: &String, s: &Settings| 2 * holders(key, s) > methods.len();
    let named = |s: &&Settings| {
        let apart: Vec<&String> = keys.iter().filter(|key| !common(key, s)).collect();
        let told = label(apart.clone(), keys, s);
        [short_label(apart, keys, s), told, short_method_label(keys, s), method_label(keys, s)]
    };
    let candidates: Vec<[String; 4]> = methods.iter().map(named).collect();
    let clear = |label: &String, length: usize| {
        !label.is_empty() && candidates.iter().filter(|of| of[length] == *label).count() == 1
    };
    let choose = |shortest: usize| -> Vec<(usize, &String)> {
        let of = |of: &[String; 4]| (shortest..3).find(|&i| clear(&of[i], i)).unwrap_or(3);
        candidates.iter().map(|labels| (of(labels), &labels[of(labels)])).collect()
    };
    let mut chosen = choose(0);
    // A shorter one may be another's longer one.
    if !chosen.iter().map(|(_, label)| label).all_unique() {
        chosen = choose(2);
    }
    let left_out = chosen.iter().zip(methods).filter(|((length, _), _)| *length < 2).map(|(_, s)| s);
    let shared = left_out.map(|s| {
        let tacit: Vec<&String> = keys.iter().filter(|key| common(key, s)).collect();
        short_label(tacit, keys, s)
    });
    let shared = shared.max_by_key(String::len).unwrap_or_default();
    (chosen.into_iter().map(|(_, label)| label.clone()).collect(), shared)
}

/// The same without keys that have no effect and defaults that go without saying: our own operator is the rule, and
/// nothing moves to the host. Empty when nothing is left.
fn short_method_label(keys: &[String], settings: &Settings) -> String {
    short_label(keys.iter().collect(), keys, settings)
}

/// Of some of the keys.
fn short_label(of: Vec<&String>, keys: &[String], settings: &Settings) -> String {
    let shown = |key: &&String| match keys::find(key).map(|entry| entry.key) {
        Some(of) => {
            let tacit = of.tacit && settings.get(*key) == of.default.value().as_ref();
            !tacit && !of.moot.is_some_and(|when| holds(when, settings))
        }
        // All operators as one.
        None => settings.get(*key) != serde_json::to_value(Operator::default()).ok().as_ref(),
    };
    label(of.into_iter().filter(shown).collect(), keys, settings)
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

/// `2¹⁶`; another number as it is.
pub fn power_of_two(value: f64) -> String {
    text::power_of_two(value).unwrap_or_else(|| text::significant(value))
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
