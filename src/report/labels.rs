//! Short names of settings: the labels of methods and shapes in tables and charts.

use std::path::Path;

use itertools::Itertools;
use serde_json::Value;

use super::units::Unit;
use crate::ops::{MOVING, Operator};
use crate::recipe::keys::{self, is_operator};
use crate::words::key::{Role, When};
use crate::words::text;
use crate::words::values::Values;
use crate::words::{Key, Settings};

/// Names of methods that a sentence lists.
pub const FEW: usize = 8;

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
    if is_product(keys) { shape(keys, settings, |_, _| false) } else { shape_name(keys, settings) }
}

/// `16×128, hidden size 512`; `batch size 16`; `batch size 4, qwen2.5-0.5b`: numbers, and values that stand alone, follow
/// their names.
pub fn shape_name(keys: &[String], settings: &Settings) -> String {
    let is_number =
        |key: &Key, value: Option<&Value>| key.reads.is_empty() && value.is_some_and(Value::is_number);
    shape(keys, settings, |key, value| keys.len() == 1 || key.is_some_and(|key| is_number(key, value)))
}

/// The sizes of a shape, the first two joined by × where they are a product. `named`: whether the name of a key stands before
/// its value.
fn shape(
    keys: &[String],
    settings: &Settings,
    named: impl Fn(Option<&Key>, Option<&Value>) -> bool,
) -> String {
    let text = |path: &String| {
        let (key, value) = (keys::find(path).map(|entry| entry.key), settings.get(path));
        let named = named(key, value);
        let text = match (key, value) {
            (Some(key), Some(value)) if named => shown(key, value),
            (Some(key), Some(value)) => in_words(key, value),
            (None, Some(value)) => text::value(value),
            (key, None) => key.and_then(|key| key.without).unwrap_or("none").into(),
        };
        if named { format!("{} {text}", size_name(path)) } else { text }
    };
    let factor = |key: &String| size_value(key, settings).unwrap_or_else(|| "none".into());
    let (product, rest) = keys.split_at(if is_product(keys) { 2 } else { 0 });
    let product = (!product.is_empty()).then(|| product.iter().map(factor).join("×"));
    product.into_iter().chain(rest.iter().map(text)).join(", ")
}

/// The shortest label of each method that distinguishes it from the others, and what the labels leave out: what more than half
/// of the methods have in common. A method that is alone has the name of what it trains, of its level in the SwiGLU study, or
/// of its precision.
pub fn methods(keys: &[String], methods: &[&Settings]) -> (Vec<String>, String) {
    if keys.is_empty() {
        let says =
            |key: &str, is: &dyn Fn(&Value) -> bool| methods.iter().any(|s| s.get(key).is_some_and(is));
        let key = if says("tuning.method", &|method| method != "full") {
            "tuning.method"
        } else if says("model.kind", &|kind| kind == "swiglu") {
            "checkpoint.level"
        } else {
            "precision.compute"
        };
        let key = key.to_string();
        return (methods.iter().map(|s| label(vec![&key], &[], s)).collect(), String::new());
    }
    let all: Vec<&String> = keys.iter().collect();
    let effective: Vec<Settings> = methods.iter().map(|settings| in_effect(settings)).collect();
    let alike = |a: usize, b: usize| keys.iter().all(|key| effective[a].get(key) == effective[b].get(key));
    let holders = |key: &String, s: &Settings| methods.iter().filter(|m| m.get(key) == s.get(key)).count();
    let always_said = |key: &String| keys::find(key).is_some_and(|entry| entry.key.always_said);
    let common = |key: &String, s: &Settings| !always_said(key) && 2 * holders(key, s) > methods.len();
    let named = |(raw, s): (&&Settings, &Settings)| {
        let apart: Vec<&String> = keys.iter().filter(|key| !common(key, raw)).collect();
        let long = label(apart.clone(), keys, s);
        [short_label(apart, keys, s), long, short_label(all.clone(), keys, s), label(all.clone(), keys, s)]
    };
    let candidates: Vec<[String; 4]> = methods.iter().zip(&effective).map(named).collect();
    // Methods that come to the same share a label.
    let clear = |own: usize, length: usize| {
        let label = &candidates[own][length];
        let is_other = |(i, of): (usize, &[String; 4])| of[length] == *label && !alike(own, i);
        !label.is_empty() && !candidates.iter().enumerate().any(is_other)
    };
    let choose = |shortest: usize| -> Vec<(usize, &String)> {
        let length = |own: usize| (shortest..3).find(|&length| clear(own, length)).unwrap_or(3);
        (0..candidates.len()).map(|own| (length(own), &candidates[own][length(own)])).collect()
    };
    let mut chosen = choose(0);
    // A shorter one may be another's longer one.
    let is_twice = |(a, b): (usize, usize)| chosen[a].1 == chosen[b].1 && !alike(a, b);
    if (0..chosen.len()).tuple_combinations().any(is_twice) {
        chosen = choose(2);
    }
    // A method that has another value without words for it would be told to have this one.
    let says = |key: &String, of: &Settings| !short_label(vec![key], keys, of).is_empty();
    let without_doubt = |key: &String| methods.iter().all(|of| common(key, of) || says(key, of));
    // A pipeline's micro-batches are counted by a key of its own.
    let in_pipelines = methods.iter().any(|of| of.get("parallel.pipeline.micro_batches").is_some());
    let counted = |key: &String| in_pipelines && key == "train.accumulation_steps";
    let left_out = chosen.iter().zip(methods).filter(|((length, _), _)| *length < 2).map(|(_, s)| s);
    let shared = left_out.map(|s| {
        let tacit = keys.iter().filter(|key| common(key, s) && without_doubt(key) && !counted(key));
        short_label(tacit.collect(), keys, s)
    });
    let shared = shared.max_by_key(String::len).unwrap_or_default();
    let labels: Vec<String> = chosen.into_iter().map(|(_, label)| label.clone()).collect();
    (told_apart(labels, keys, methods), shared)
}

/// Which blocks backward computes again whatever `checkpoint.blocks` is.
pub fn recomputed(settings: &Settings) -> Option<&'static str> {
    let is = |key: &str, value: &str| settings.get(key).is_some_and(|of| of == value);
    let moves = settings.contains_key("offload.strategy") && !is("offload.strategy", "none");
    match is("train.mode", "inference") {
        false if moves => Some("that move"),
        false if is("parallel.shard", "weights") => Some("whose weights are gathered"),
        _ => None,
    }
}

/// The settings as they take effect, where `checkpoint.blocks = 0` does not keep all blocks: a block that stays on the device
/// beside those that move is kept.
fn in_effect(settings: &Settings) -> Settings {
    const BLOCKS: &str = "checkpoint.blocks";
    let mut out = settings.clone();
    if recomputed(settings).is_some() && settings.get(BLOCKS).is_some_and(|of| *of == 0) {
        let some_stay = settings.get("offload.resident_blocks").is_some_and(|of| *of != 0);
        out.insert(BLOCKS.into(), if some_stay { MOVING.into() } else { 1.into() });
    }
    out
}

/// The labels; behind those that are the same, as of files of one name in several folders, what differs in full.
fn told_apart(labels: Vec<String>, keys: &[String], methods: &[&Settings]) -> Vec<String> {
    let apart = |(label, of): (&String, &&Settings)| {
        let alike = labels.iter().zip(methods).filter(|(other, _)| *other == label);
        let alike: Vec<&&Settings> = alike.map(|(_, settings)| settings).collect();
        let differs = |key: &&String| !alike.iter().map(|settings| settings.get(*key)).all_equal();
        let written = |key: &String| {
            Some(match of.get(key)? {
                // A path is known as one.
                Value::String(text) => text.clone(),
                value => format!("{key} {}", text::value(value)),
            })
        };
        let values: Vec<String> = keys.iter().filter(differs).filter_map(written).collect();
        if values.is_empty() { label.clone() } else { format!("{label} ({})", values.join(", ")) }
    };
    labels.iter().zip(methods).map(apart).collect()
}

/// [`label`] without keys that have no effect, those that say how is measured, and defaults that go without saying: our own
/// operator is the rule, and nothing moves to the host. Empty when nothing is left.
fn short_label(of: Vec<&String>, keys: &[String], settings: &Settings) -> String {
    let shown = |key: &&String| match keys::find(key).map(|entry| entry.key) {
        Some(of) => {
            let tacit = of.tacit && settings.get(*key) == of.default.value().as_ref();
            !of.unsaid && !tacit && !of.moot.is_some_and(|when| holds(when, settings))
        }
        // All operators as one.
        None => settings.get(*key) != serde_json::to_value(Operator::default()).ok().as_ref(),
    };
    label(of.into_iter().filter(shown).collect(), keys, settings)
}

fn holds((key, value): When, settings: &Settings) -> bool {
    settings.get(key).and_then(Value::as_str) == Some(value)
}

/// A label of the `shown` ones of a method's keys. Operators have their names in it, `plain norm`, except where all operators
/// of the method have one value, or the network has only one operator.
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

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
