//! Short names of settings: what a method and a shape are called in tables and charts.

use std::path::Path;

use serde_json::Value;

use super::operators;
use super::table::Comparison;
use crate::recipe::setting;
use crate::words::text;
use crate::words::{Bytes, Settings};

/// Sizes in the order in which they are read; others follow by name.
const READING_ORDER: [&str; 10] = [
    "train.batch_size",
    "train.seq_len",
    "train.accumulation_steps",
    "data.corpus",
    "data.size",
    "data.vocab_size",
    "model.preset",
    "model.hidden_size",
    "model.intermediate_size",
    "model.num_hidden_layers",
];

/// Sorts size keys for reading.
pub fn reading_order(keys: &mut [String]) {
    keys.sort_by_key(|key| {
        let place = READING_ORDER.iter().position(|known| known == key).unwrap_or(READING_ORDER.len());
        (place, key.clone())
    });
}

/// What a size is called: `train.seq_len` → `sequence length`.
pub fn size_name(key: &str) -> String {
    match key {
        "train.batch_size" => "batch size".into(),
        "train.seq_len" => "sequence length".into(),
        "model.num_hidden_layers" => "layers".into(),
        "model.num_attention_heads" => "heads".into(),
        "model.max_position_embeddings" => "longest sequence".into(),
        "model.vocab_size" => "vocabulary".into(),
        "data.size" => "corpus size".into(),
        "data.vocab_size" => "tokenizer's vocabulary".into(),
        "data.train_split" => "training split".into(),
        "data.eval_split" => "held-out split".into(),
        _ => last_part(key),
    }
}

/// What a size is; `None` where a cell has none of that kind.
pub fn size_value(key: &str, settings: &Settings) -> Option<String> {
    let value = setting(settings, key)?;
    Some(match (key, value.as_u64()) {
        ("data.size", Some(bytes)) => Bytes(bytes).to_string(),
        ("data.corpus" | "data.tokenizer", _) => file_name(&text::value(&value)),
        _ => text::value(&value),
    })
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
    let value = |key: &String| match size_value(key, settings) {
        Some(value) if key == "seed" && keys.len() > 1 => format!("seed {value}"),
        Some(value) => value,
        None if key == "model.preset" => "no preset".into(),
        None => "none".into(),
    };
    match keys {
        [one] => format!("{} {}", size_name(one), value(one)),
        _ => join_sizes(keys, keys.iter().map(value).collect(), "×"),
    }
}

fn join_sizes(keys: &[String], mut parts: Vec<String>, times: &str) -> String {
    if keys.len() > 1 && keys[0] == READING_ORDER[0] && keys[1] == READING_ORDER[1] {
        let sequence = parts.remove(1);
        parts[0] = format!("{}{times}{sequence}", parts[0]);
    }
    parts.join(", ")
}

/// What a method is called, all of its keys told.
pub fn method_label(keys: &[String], settings: &Settings) -> String {
    label(keys.iter().collect(), keys, settings)
}

/// The same without what goes without saying: our own operator is the rule, nothing moves to the host or is
/// fused by itself, plain autodiff has no level, and a compute type is alone without autocast. Empty when
/// nothing is left.
pub fn short_method_label(keys: &[String], settings: &Settings) -> String {
    let value = |key: &str| settings.get(key).and_then(Value::as_str);
    let computes = keys.iter().any(|key| key == "precision.compute");
    let autocasts = settings.get("precision.autocast").and_then(Value::as_bool) == Some(true);
    let fuses = settings.get("ops.fusion").and_then(Value::as_bool) == Some(true);
    let plain = keys.iter().any(|key| key == "ops.swiglu") && value("ops.swiglu") == Some("plain");
    let kept = keys
        .iter()
        .filter(|key| !((is_operator(key) || *key == operators::KEY) && value(key) == Some("custom")))
        .filter(|key| !(plain && *key == "checkpoint.level"))
        .filter(|key| !stays_on_device(key, settings))
        .filter(|key| !(*key == "precision.autocast" && computes && !autocasts))
        .filter(|key| *key != "ops.fusion" || fuses)
        .collect();
    label(kept, keys, settings)
}

/// The shown of a method's keys. Operators go by their names, `plain norm`; one word serves all of
/// them where it is true of all, and the only one of a SwiGLU stack.
fn label(mut shown: Vec<&String>, keys: &[String], settings: &Settings) -> String {
    // What decides which other keys there are comes before them.
    shown.sort_by_key(|key| {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        (section, !["kind", "strategy"].contains(&name))
    });
    let value = |key: &String| setting(settings, key);
    let operators: Vec<&String> = shown.iter().copied().filter(|key| is_operator(key)).collect();
    let swept = keys.iter().filter(|key| is_operator(key)).count();
    let alike = operators.windows(2).all(|pair| value(pair[0]) == value(pair[1]));
    let together = swept > 1 && alike && operators.len() == swept;
    let stack = settings.get("model.kind").and_then(Value::as_str) == Some("swiglu");
    let part = |key: &String| match value(key) {
        Some(_) if together && is_operator(key) && operators[0] != key => None,
        Some(way) if together && is_operator(key) => Some(format!("{} operators", text::value(&way))),
        Some(way) if !stack && is_operator(key) => Some(format!("{} {}", text::value(&way), last_part(key))),
        value => method_part(key, value.as_deref()),
    };
    shown.into_iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

/// What is on the device unless said otherwise, and is.
fn stays_on_device(key: &str, settings: &Settings) -> bool {
    let moves = ["offload.activations", "offload.optimizer"].contains(&key);
    moves && setting(settings, key).is_some_and(|value| *value == "device")
}

/// Whether a key says which implementation of an operator runs.
pub fn is_operator(key: &str) -> bool {
    key.starts_with("ops.") && key != "ops.fusion"
}

/// `None` where there is nothing to say.
fn method_part(key: &str, value: Option<&Value>) -> Option<String> {
    let name = last_part(key);
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return match key {
            "eval.every" => Some("no evaluation".into()),
            "train.clip_norm" => Some("no clipping".into()),
            // Of a kind or a strategy that this cell's is not, or of an evaluation that it does not have.
            _ if ["eval.", "train.schedule.", "model.", "data.", "offload.", "precision.scaler."]
                .iter()
                .any(|section| key.starts_with(section)) =>
            {
                None
            }
            _ => Some(format!("no {name}")),
        };
    };
    let read = text::value(value);
    Some(match (key, value) {
        ("measure.memory_limit", _) => {
            format!("limit {}", value.as_u64().map_or(read, |n| Bytes(n).to_string()))
        }
        ("model.tie_word_embeddings", Value::Bool(tied)) => {
            if *tied { "tied embeddings" } else { "untied embeddings" }.into()
        }
        ("model.positions", _) => format!("{read} positions"),
        ("model.weights", _) => format!("{} weights", file_name(&read)),
        ("offload.activations" | "offload.optimizer", _) => format!("{name} on {read}"),
        (operators::KEY, _) => format!("{read} operators"),
        ("ops.fusion", Value::Bool(fuses)) => {
            if *fuses { "kernel fusion" } else { "no kernel fusion" }.into()
        }
        ("eval.every", _) => format!("evaluated every {read} steps"),
        ("eval.batches", _) => format!("{read} held-out batches"),
        ("data.k", _) => format!("k = {read}"),
        ("data.tokenize", _) => format!("tokenised {}", read.replace('_', " ")),
        ("data.last_sample", _) => format!("last sample {}", if read == "cut" { "cut" } else { "dropped" }),
        ("data.num_workers", Value::Number(n)) => match n.as_u64() {
            Some(0) => "loaded in the loop".into(),
            Some(1) => "one loader thread".into(),
            _ => format!("{read} loader threads"),
        },
        ("precision.scaler.kind", _) if read == "none" => return None,
        ("precision.scaler.kind", _) => format!("{read} scale"),
        ("precision.scaler.init_scale", _) => {
            format!("from {}", power_of_two(value.as_f64().unwrap_or_default()))
        }
        ("precision.scaler.scale", _) => power_of_two(value.as_f64().unwrap_or_default()),
        ("train.schedule.kind", _) => format!("{read} schedule"),
        ("train.schedule.warmup_steps", _) => format!("{read} warm-up steps"),
        ("train.schedule.final_fraction", _) => format!("down to {read} of the rate"),
        ("device", _) => if read == "cpu" { "CPU" } else { "GPU" }.into(),
        ("offload.strategy", _) if read == "none" => "no offload".into(),
        ("offload.buffers", _) if read == "1" => "1 buffer".into(),
        ("offload.buffers", _) => format!("{read} buffers"),
        (_, Value::Bool(true)) => name,
        (_, Value::Bool(false)) => format!("no {name}"),
        (_, Value::Number(_)) => format!("{name} {read}"),
        _ => read,
    })
}

/// `2^16`; another number as it is.
pub fn power_of_two(value: f64) -> String {
    let exponent = value.log2();
    if exponent.fract() == 0.0 { format!("2^{exponent}") } else { text::significant(value) }
}

fn last_part(key: &str) -> String {
    key.rsplit('.').next().unwrap_or(key).replace('_', " ")
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
