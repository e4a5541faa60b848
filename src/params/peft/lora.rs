//! LoRA in PEFT's layout: A [r, inputs] and B [outputs, r] of every adapted layer as
//! `base_model.model.<layer>.lora_A.weight`.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use burn::tensor::TensorData;
use serde_json::{Map, Value, json};

use super::{Config, WRAPPED, adapters};
use crate::ops::dense::WeightLayout;
use crate::params::save::{MARK, RUNNER, write_weights};
use crate::params::table::{Entry, Table};
use crate::params::tuning::Lora;

/// Keys that change what an adapter computes; PEFT's defaults of them do not.
const UNSUPPORTED: [&str; 18] = [
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "bias",
    "exclude_modules",
    "kasa_config",
    "layer_replication",
    "layers_to_transform",
    "lora_bias",
    "monteclora_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
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
    // PEFT writes the paths of few layers in full. That all layers of a name are adapted is checked with the matrices.
    let last = |path: &str| path.rsplit('.').next().map(String::from);
    let names = |value: &Value| match value {
        Value::Array(names) => names.iter().map(|name| name.as_str().and_then(last)).collect(),
        _ => None,
    };
    let targets: Option<BTreeSet<String>> = names(config.get("target_modules"));
    let targets = targets.ok_or_else(|| {
        config.wrong(
            "target_modules must be a list of names of layers; give it as such when the adapter is made",
        )
    })?;
    Ok(Lora {
        rank: rank.ok_or_else(|| config.wrong("r must be a whole number above 0"))? as usize,
        alpha: alpha.ok_or_else(|| config.wrong("lora_alpha must be a number above 0"))?,
        dropout: config.get("lora_dropout").as_f64().unwrap_or(0.0),
        target_modules: targets.into_iter().collect::<Vec<_>>().join(", "),
        adapter: Some(folder.display().to_string()),
    })
}

/// The first key that says something else in the folder than in the cell, with its values: theirs and ours.
pub fn difference(ours: &Lora, theirs: &Lora) -> Option<(&'static str, [String; 2])> {
    let both = [theirs, ours];
    let targets = |lora: &Lora| lora.targets().map(String::from).collect::<BTreeSet<_>>();
    if ours.rank != theirs.rank {
        return Some(("tuning.rank", both.map(|lora| lora.rank.to_string())));
    }
    if ours.alpha != theirs.alpha {
        return Some(("tuning.alpha", both.map(|lora| lora.alpha.to_string())));
    }
    let quoted = |lora: &Lora| format!("\"{}\"", lora.target_modules);
    (targets(ours) != targets(theirs)).then(|| ("tuning.target_modules", both.map(quoted)))
}

/// What `adapter_config.json` says of LoRA alone.
pub fn config(lora: &Lora, layout: WeightLayout) -> Map<String, Value> {
    let config = json!({
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": lora.targets().collect::<Vec<_>>(),
        "bias": "none",
        "fan_in_fan_out": layout == WeightLayout::InOut,
        "init_lora_weights": true,
    });
    config.as_object().expect("made as an object").clone()
}

/// Writes A and B of all layers, and parameters of the model itself that are `kept` with them.
pub fn write(
    path: &Path,
    table: &Table,
    kept: &[&Entry],
    value: &mut dyn FnMut(&str) -> TensorData,
) -> io::Result<()> {
    let wrapped = |entry: &Entry| Entry { name: format!("{WRAPPED}{}", entry.name), ..entry.clone() };
    let entries = adapters(table).chain(kept.iter().copied()).map(wrapped).collect();
    let unwrapped = |name: &str| value(name.strip_prefix(WRAPPED).expect("wrapped"));
    write_weights(path, &Table { entries }, (MARK, RUNNER), unwrapped).map_err(io::Error::other)
}
