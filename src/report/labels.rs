//! Short names of settings: what a method and a shape are called in tables and charts.

use serde_json::Value;

use super::table::Comparison;
use crate::recipe::{Bytes, Settings};

/// Sizes in the order in which they are read; others follow by name.
const READING_ORDER: [&str; 5] = [
    "train.batch_size",
    "train.seq_len",
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
        _ => last_part(key),
    }
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
    let value = |key: &String| match settings.get(key) {
        Some(value) if key == "seed" && keys.len() > 1 => format!("seed {}", plain(value)),
        Some(value) => plain(value),
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
    let parts: Vec<String> = keys.iter().map(|key| method_part(key, settings.get(key))).collect();
    parts.join(", ")
}

/// The same without what goes without saying: our own operator is the rule, and plain autodiff
/// has no level. Empty when nothing is left.
pub fn short_method_label(keys: &[String], settings: &Settings) -> String {
    let is_operator = |key: &str| key.starts_with("ops.");
    let value = |key: &str| settings.get(key).and_then(Value::as_str);
    let plain = keys.iter().any(|key| is_operator(key) && value(key) == Some("plain"));
    let kept: Vec<String> = keys
        .iter()
        .filter(|key| !(is_operator(key) && value(key) == Some("custom")))
        .filter(|key| !(plain && *key == "checkpoint.level"))
        .cloned()
        .collect();
    method_label(&kept, settings)
}

fn method_part(key: &str, value: Option<&Value>) -> String {
    let name = last_part(key);
    match value {
        None | Some(Value::Null) => format!("no {name}"),
        Some(Value::Bool(true)) => name,
        Some(Value::Bool(false)) => format!("no {name}"),
        Some(value @ Value::Number(_)) => match (key, value.as_u64()) {
            ("measure.memory_limit", Some(bytes)) => format!("limit {}", Bytes(bytes)),
            _ => format!("{name} {}", plain(value)),
        },
        Some(value) => plain(value),
    }
}

fn last_part(key: &str) -> String {
    key.rsplit('.').next().unwrap_or(key).replace('_', " ")
}

/// A value as typed: 0.0 reads 0, text has no quotes.
pub fn plain(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::String(text), _) => text.clone(),
        (Value::Number(_), Some(x)) if value.is_f64() => x.to_string(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings() -> Settings {
        crate::recipe::flatten(&json!({
            "train": { "batch_size": 16, "seq_len": 128 },
            "model": { "hidden_size": 512 },
            "checkpoint": { "level": 0.0 },
            "ops": { "swiglu": "plain" },
        }))
    }

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn shapes_and_methods() {
        let sizes = keys(&["train.batch_size", "train.seq_len", "model.hidden_size"]);
        assert_eq!(shape_label(&sizes, &settings()), "16×128, 512");
        assert_eq!(size_legend(&sizes), "batch size × sequence length, hidden size");
        assert_eq!(shape_label(&sizes[..1], &settings()), "batch size 16");
        let methods = keys(&["checkpoint.level", "ops.swiglu"]);
        assert_eq!(method_label(&methods, &settings()), "level 0, plain");
        assert_eq!(short_method_label(&methods, &settings()), "plain");
        assert_eq!(method_label(&keys(&["measure.memory_limit"]), &settings()), "no memory limit");
    }
}
