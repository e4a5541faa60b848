//! LoRA in PEFT's layout: A [r, inputs] and B [outputs, r] of every adapted layer as
//! `base_model.model.<layer>.lora_A.weight`.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use burn::tensor::TensorData;
use itertools::Itertools;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Config, adapters, wrapped};
use crate::ops::dense::WeightLayout;
use crate::params::save::{MARK, RUNNER, write_weights};
use crate::params::table::{Entry, Table};
use crate::params::tuning::{Biases, Lora, MAGNITUDE, Targets, patterns};
use crate::params::weights::{HEAD, inner, is_embedding};

/// Keys that change what an adapter computes; PEFT's defaults of them do not.
const UNSUPPORTED: [&str; 12] = [
    "alora_invocation_tokens",
    "arrow_config",
    "exclude_modules",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_qalora",
    "velora_config",
];

/// First values of `init_lora_weights` that go with other weights of the model than its own.
const CHANGES_MODEL: [&str; 5] = ["corda", "loftq", "lora_ga", "olora", "pissa"];

/// The settings, with the folder as the first values.
///
/// # Errors
/// What the runner does not compute, named.
pub fn read(config: &Config, folder: &Path) -> Result<Lora, String> {
    config.only_defaults(&UNSUPPORTED)?;
    let init = config.get("init_lora_weights").as_str().unwrap_or_default();
    if CHANGES_MODEL.iter().any(|way| init.to_lowercase().starts_with(way)) {
        return Err(config.wrong(&format!(
            "init_lora_weights = \"{init}\" changes the model's own weights, which the folder does not hold; save the \
             adapter with path_initial_model_for_weight_conversion"
        )));
    }
    let rank = config.get("r").as_u64().filter(|r| *r > 0);
    let alpha = config.get("lora_alpha").as_f64().filter(|alpha| *alpha > 0.0);
    let bias = match config.get("bias") {
        Value::Null => Biases::None,
        bias => {
            Biases::deserialize(bias).map_err(|_| config.wrong(&format!("bias = {bias} is not supported")))?
        }
    };
    Ok(Lora {
        rank: rank.ok_or_else(|| config.wrong("r must be a whole number above 0"))? as usize,
        alpha: alpha.ok_or_else(|| config.wrong("lora_alpha must be a number above 0"))?,
        dropout: config.get("lora_dropout").as_f64().unwrap_or(0.0),
        target_modules: targets(config)?,
        layers_to_transform: numbers(config)?,
        rank_pattern: pattern(config, "rank_pattern"),
        alpha_pattern: pattern(config, "alpha_pattern"),
        use_rslora: *config.get("use_rslora") == true,
        use_dora: *config.get("use_dora") == true,
        bias,
        modules_to_save: names(config.get("modules_to_save")).filter(|names| !names.is_empty()).map(joined),
        adapter: Some(folder.display().to_string()),
    })
}

fn names(value: &Value) -> Option<BTreeSet<String>> {
    value.as_array()?.iter().map(|name| name.as_str().map(String::from)).collect()
}

fn joined(names: BTreeSet<String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// A list of names or of the ends of paths, or a regular expression.
fn targets(config: &Config) -> Result<String, String> {
    match config.get("target_modules") {
        Value::String(text) => Ok(text.clone()),
        list => names(list).map(joined).ok_or_else(|| {
            config.wrong("target_modules must be a list of names of layers, or a regular expression")
        }),
    }
}

/// The numbers of blocks, of which PEFT takes one alone too.
fn numbers(config: &Config) -> Result<Option<String>, String> {
    let value = config.get("layers_to_transform");
    let list = match value {
        Value::Null => return Ok(None),
        Value::Array(list) if list.is_empty() => return Ok(None),
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    };
    let list: Option<Vec<String>> = list.iter().map(|number| Some(number.as_u64()?.to_string())).collect();
    let wrong = || config.wrong(&format!("layers_to_transform = {value} must be numbers of blocks"));
    list.map(|list| Some(list.join(", "))).ok_or_else(wrong)
}

fn pattern(config: &Config, key: &str) -> Option<String> {
    let table = config.get(key).as_object().filter(|table| !table.is_empty())?;
    Some(table.iter().map(|(end, value)| format!("{end} = {}", value.as_f64().unwrap_or(0.0))).join(", "))
}

/// The first key that says something else in the folder than in the cell, with its values: theirs and ours.
pub fn difference(ours: &Lora, theirs: &Lora) -> Option<(&'static str, [String; 2])> {
    let both = [theirs, ours];
    let differ = |key, of: &dyn Fn(&Lora) -> String| {
        let [theirs, ours] = both.map(of);
        (theirs != ours).then_some((key, [theirs, ours]))
    };
    // In any order: no layer fits two patterns of other values.
    let quoted = |text: &Option<String>| {
        let all = patterns(text.as_deref().unwrap_or_default()).unwrap_or_default();
        let all = all.iter().map(|pattern| format!("{} = {}", pattern.text, pattern.value));
        format!("\"{}\"", all.sorted().join(", "))
    };
    differ("tuning.rank", &|lora| lora.rank.to_string())
        .or_else(|| differ("tuning.alpha", &|lora| lora.alpha.to_string()))
        .or_else(|| differ("tuning.use_rslora", &|lora| lora.use_rslora.to_string()))
        .or_else(|| differ("tuning.use_dora", &|lora| lora.use_dora.to_string()))
        .or_else(|| differ("tuning.rank_pattern", &|lora| quoted(&lora.rank_pattern)))
        .or_else(|| differ("tuning.alpha_pattern", &|lora| quoted(&lora.alpha_pattern)))
        .or_else(|| {
            // PEFT writes the paths of few layers in full, and its file has those of the blocks: whether all are there is
            // checked with the matrices.
            let layers = both.map(|lora| match lora.targets() {
                Ok(Targets::Ends(ends)) => Some(ends.iter().map(|end| last(end)).collect::<BTreeSet<_>>()),
                _ => None,
            });
            let [Some(theirs), Some(ours)] = layers else { return None };
            let quoted = |lora: &Lora| format!("\"{}\"", lora.target_modules);
            (theirs != ours).then(|| ("tuning.target_modules", both.map(quoted)))
        })
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// What `adapter_config.json` says of LoRA alone. `table`: the parameters of the model with the adapter.
pub fn config(lora: &Lora, layout: WeightLayout, table: &Table) -> Map<String, Value> {
    let targets = match lora.targets() {
        Ok(Targets::Ends(ends)) => json!(ends),
        Ok(Targets::Whole(_)) => json!(lora.target_modules),
        _ => {
            let layers = adapters(table).filter_map(|entry| entry.name.strip_suffix(".lora_A.weight"));
            json!(layers.map(last).collect::<BTreeSet<_>>())
        }
    };
    let pattern = |text: &Option<String>, value: fn(f64) -> Value| {
        let all = patterns(text.as_deref().unwrap_or_default()).unwrap_or_default();
        all.iter().map(|pattern| (pattern.text.to_string(), value(pattern.value))).collect::<Map<_, _>>()
    };
    let config = json!({
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": targets,
        "layers_to_transform": lora.blocks().unwrap_or_default(),
        "rank_pattern": pattern(&lora.rank_pattern, |rank| json!(rank as u64)),
        "alpha_pattern": pattern(&lora.alpha_pattern, |alpha| json!(alpha)),
        "use_rslora": lora.use_rslora,
        "use_dora": lora.use_dora,
        "bias": <&str>::from(lora.bias),
        "fan_in_fan_out": layout == WeightLayout::InOut,
        "init_lora_weights": true,
    });
    config.as_object().expect("made as an object").clone()
}

/// Writes the matrices of all layers, and parameters of the model itself that are `kept` with them. Where the head `ties` to
/// the embedding, PEFT asks for both. `is_inner`: whether the layers are those of the text part of a larger model.
pub fn write(
    path: &Path,
    (table, is_inner): (&Table, bool),
    (kept, ties): (&[&Entry], bool),
    value: &mut dyn FnMut(&str) -> TensorData,
) -> io::Result<()> {
    let adapted: BTreeSet<&str> =
        adapters(table).filter_map(|entry| entry.name.strip_suffix(".lora_A.weight")).collect();
    let all: Vec<&Entry> = adapters(table).chain(kept.iter().copied()).collect();
    let stored = |entry: &&Entry| {
        let is_adapted = entry.name.rsplit_once('.').is_some_and(|(path, _)| adapted.contains(path));
        let name = wrapped(&entry.name, is_adapted);
        let name = if is_inner { inner::in_adapter(&name) } else { name };
        // PEFT's magnitude is a vector.
        let is_vector = entry.name.ends_with(MAGNITUDE);
        let shape = if is_vector { entry.shape[1..].to_vec() } else { entry.shape.clone() };
        Entry { name, shape, packed: false, ..(*entry).clone() }
    };
    let mut entries: Vec<Entry> = all.iter().map(stored).collect();
    let mut names: HashMap<String, &str> =
        entries.iter().zip(&all).map(|(stored, entry)| (stored.name.clone(), entry.name.as_str())).collect();
    if let Some(embedding) = kept.iter().find(|entry| ties && is_embedding(&entry.name)) {
        let head = Entry { name: wrapped(HEAD, false), ..(*embedding).clone() };
        names.insert(head.name.clone(), &embedding.name);
        entries.push(head);
    }
    let named = |name: &str| value(names[name]);
    write_weights(path, &Table { entries }, (MARK, RUNNER), named).map_err(io::Error::other)
}
