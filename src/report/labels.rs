//! Short names of settings: what a method and a shape are called in tables and charts.

use std::path::Path;

use serde_json::Value;

use super::table::Comparison;
use crate::recipe::{Bytes, Settings, setting};
use crate::text;

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

/// The same without what goes without saying: our own operator is the rule, plain autodiff has no level,
/// and a compute type is alone without autocast. Empty when nothing is left.
pub fn short_method_label(keys: &[String], settings: &Settings) -> String {
    let value = |key: &str| settings.get(key).and_then(Value::as_str);
    let computes = keys.iter().any(|key| key == "precision.compute");
    let autocasts = settings.get("precision.autocast").and_then(Value::as_bool) == Some(true);
    let plain = keys.iter().any(|key| key == "ops.swiglu") && value("ops.swiglu") == Some("plain");
    let kept = keys
        .iter()
        .filter(|key| !(is_operator(key) && value(key) == Some("custom")))
        .filter(|key| !(plain && *key == "checkpoint.level"))
        .filter(|key| !(*key == "precision.autocast" && computes && !autocasts))
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

fn is_operator(key: &str) -> bool {
    key.starts_with("ops.")
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
mod tests {
    use super::super::testing::language_recipe;
    use super::*;
    use serde_json::json;

    fn settings() -> Settings {
        crate::recipe::flatten(&json!({
            "train": { "batch_size": 16, "seq_len": 128 },
            "model": { "kind": "swiglu", "hidden_size": 512 },
            "checkpoint": { "level": 0.0 },
            "ops": { "swiglu": "plain" },
        }))
    }

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    /// Labels of the first two cells of a grid over a small language model.
    fn of_grid(grid: &str) -> [(String, String); 2] {
        let recipe = language_recipe(grid);
        let comparison = Comparison::new(&recipe, &[]);
        [0, 1].map(|i| {
            let line = &comparison.lines[i];
            (comparison.shapes[line.shape].label.clone(), comparison.methods[line.method].clone())
        })
    }

    #[test]
    fn language_models_have_readable_names() {
        let methods = [
            ("\"ops.norm\" = [\"custom\", \"plain\"]", ["custom norm", "plain norm"]),
            (
                "\"ops.norm\" = [\"plain\", \"custom\"]\n\"ops.gelu\" = [\"plain\", \"custom\"]",
                ["plain operators", "plain norm"],
            ),
            (
                "\"precision\" = [{ compute = \"fp32\" }, { compute = \"fp16\", autocast = true, \
                 scaler = { kind = \"static\", scale = 1024 } }]",
                ["fp32", "autocast, fp16, static scale"],
            ),
            (
                "precision.compute = \"fp16\"\n\"precision.scaler.kind\" = \"static\"\n\
                 \"precision.scaler.scale\" = [1000, 0.25]",
                ["1000", "2^-2"],
            ),
            ("\"train.clip_norm\" = [1.5, 2]", ["clip norm 1.5", "clip norm 2"]),
            (
                "\"train.schedule\" = [{ kind = \"constant\" }, { kind = \"cosine\", warmup_steps = 5 }]",
                ["constant schedule", "cosine schedule"],
            ),
            (
                "\"model.positions\" = [\"learned\", \"sinusoidal\"]",
                ["learned positions", "sinusoidal positions"],
            ),
            ("\"model.tie_word_embeddings\" = [true, false]", ["tied embeddings", "untied embeddings"]),
            ("\"offload.optimizer\" = [\"device\", \"host\"]", ["optimizer on device", "optimizer on host"]),
            ("\"train.optimizer.lr\" = [0.001, 0.01]", ["lr 0.001", "lr 0.01"]),
        ];
        for (grid, names) in methods {
            assert_eq!(of_grid(&format!("[grid]\n{grid}")).map(|(_, method)| method), names, "{grid}");
        }
        let sizes = [
            ("\"train.accumulation_steps\" = [1, 2]", ["accumulation steps 1", "accumulation steps 2"]),
            ("\"data.size\" = [\"1 MiB\", \"2 MiB\"]", ["corpus size 1.00 MiB", "corpus size 2.00 MiB"]),
        ];
        for (grid, names) in sizes {
            assert_eq!(of_grid(&format!("[grid]\n{grid}")).map(|(shape, _)| shape), names, "{grid}");
        }
    }

    #[test]
    fn a_preset_stands_for_what_it_sets() {
        let grid = "[[grid]]\n\"model\" = [{ kind = \"qwen2\", preset = \"qwen2.5-0.5b\" }, \
                    { kind = \"qwen2\", preset = \"qwen2.5-7b\" }]\n\"train.batch_size\" = [1, 2]\n";
        let recipe = language_recipe(grid);
        let comparison = Comparison::new(&recipe, &[]);
        let shapes: Vec<&str> = comparison.shapes.iter().map(|shape| shape.label.as_str()).collect();
        assert_eq!(shapes, ["1, qwen2.5-0.5b", "2, qwen2.5-0.5b", "1, qwen2.5-7b", "2, qwen2.5-7b"]);
        // The smaller model ties its embeddings; that is no method of its own.
        assert_eq!(comparison.methods.len(), 1);
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
