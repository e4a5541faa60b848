//! PEFT's folder of an adapter. LoRA: `adapter_config.json`, and `adapter_model.safetensors` with A [r, inputs] and
//! B [outputs, r] of every adapted layer as `base_model.model.<layer>.lora_A.weight`.

mod virtual_tokens;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::Path;

use burn::tensor::TensorData;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

use super::save::{MARK, RUNNER, write_weights};
use super::table::{Entry, Group, Table};
use super::tuning::{Lora, Prefix, Prompt, Tunes, TuningConfig, VirtualTokens};
use super::weights::{TensorFile, float};
use crate::words::Rule;
use virtual_tokens::Part;
pub use virtual_tokens::{check as check_virtual, write as write_virtual};

pub const CONFIG: &str = "adapter_config.json";
pub const TENSORS: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of a model's layers.
const WRAPPED: &str = "base_model.model.";
/// Keys that change what an adapter computes; PEFT's defaults of them do not.
const UNSUPPORTED: [&str; 17] = [
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "bias",
    "exclude_modules",
    "layer_replication",
    "layers_to_transform",
    "lora_bias",
    "modules_to_save",
    "monteclora_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
];

/// A parameter's name in a model without PEFT: `base_model.model.model.layers.0.q_proj.lora_A.default.weight`, as a
/// live model has it, is `model.layers.0.q_proj.lora_A.weight`.
pub fn plain_name(name: &str) -> String {
    name.replacen(WRAPPED, "", 1).replace(".default.", ".")
}

/// The configuration of a folder, and what an error about it begins with.
#[allow(clippy::type_complexity)]
fn read_config(folder: &Path) -> Result<(Map<String, Value>, impl Fn(&str) -> String), String> {
    let path = folder.join(CONFIG);
    let text = fs::read_to_string(&path).map_err(|e| {
        format!("cannot read {}: {e}; name a folder that PEFT's save_pretrained has written", path.display())
    })?;
    let wrong = move |what: &str| format!("{}: {what}", path.display());
    let config = serde_json::from_str(&text).map_err(|e| wrong(&format!("it is not a JSON object: {e}")))?;
    Ok((config, wrong))
}

/// Whether a value is PEFT's default of a key that is not supported.
fn is_default(value: &Value) -> bool {
    let empty = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    value.is_null() || *value == false || *value == "none" || empty
}

/// What methods of tuning add to a network.
fn adapters(table: &Table) -> impl Iterator<Item = &Entry> {
    table.entries.iter().filter(|entry| entry.group == Group::Adapter)
}

/// The method of a folder of any kind, with the folder as its first values.
///
/// # Errors
/// A missing or damaged file, and what the runner does not compute, named.
pub fn method(folder: &Path) -> Result<TuningConfig, String> {
    let (config, wrong) = read_config(folder)?;
    let adapter = Some(folder.display().to_string());
    Ok(match virtual_tokens::of_config(&config).map_err(|what| wrong(&what))? {
        None => TuningConfig::Lora(read(folder)?),
        Some(VirtualTokens::Embeddings(num_virtual_tokens)) => {
            TuningConfig::Prompt(Prompt { num_virtual_tokens, adapter })
        }
        Some(VirtualTokens::KeysAndValues(num_virtual_tokens)) => {
            TuningConfig::Prefix(Prefix { num_virtual_tokens, adapter })
        }
    })
}

/// The settings of a LoRA adapter, with the folder as its first values.
///
/// # Errors
/// A missing or damaged file, and what the runner does not compute, named.
pub fn read(folder: &Path) -> Result<Lora, String> {
    let (config, wrong) = read_config(folder)?;
    let get = |key: &str| config.get(key).unwrap_or(&Value::Null);
    if get("peft_type") != "LORA" {
        return Err(wrong(&format!(
            "peft_type {} is not supported here; \"LORA\", \"PROMPT_TUNING\" and \"PREFIX_TUNING\" are, each with its \
             own tuning.method",
            get("peft_type")
        )));
    }
    if let Some(key) = UNSUPPORTED.into_iter().find(|key| !is_default(get(key))) {
        return Err(wrong(&format!("{key} = {} is not supported", get(key))));
    }
    let rank =
        get("r").as_u64().filter(|r| *r > 0).ok_or_else(|| wrong("r must be a whole number above 0"))?;
    let alpha = get("lora_alpha").as_f64().filter(|alpha| *alpha > 0.0);
    let names = |value: &Value| match value {
        Value::Array(names) => names.iter().map(|name| name.as_str().map(String::from)).collect(),
        _ => None,
    };
    let targets: BTreeSet<String> = names(get("target_modules")).ok_or_else(|| {
        wrong("target_modules must be a list of names of layers; give it as such when the adapter is made")
    })?;
    Ok(Lora {
        rank: rank as usize,
        alpha: alpha.ok_or_else(|| wrong("lora_alpha must be a number above 0"))?,
        dropout: get("lora_dropout").as_f64().unwrap_or(0.0),
        target_modules: targets.into_iter().collect::<Vec<_>>().join(", "),
        adapter: Some(folder.display().to_string()),
    })
}

/// Refuses settings that are not those of the folder they name.
///
/// # Errors
/// The key, and what to write.
pub fn check(lora: &Lora) -> Result<(), Rule> {
    let Some(folder) = lora.folder() else { return Ok(()) };
    let there = read(folder).map_err(|e| Rule::new(&["tuning.adapter"], e, "name another folder"))?;
    let targets = |lora: &Lora| lora.targets().map(String::from).collect::<BTreeSet<_>>();
    let different = |key, ours: String, theirs: String| {
        let message =
            format!("the adapter in {} has {key} = {theirs}, and this cell {ours}", folder.display());
        Err(Rule::new(&[key], message, format!("write {key} = {theirs}, or name another adapter")))
    };
    if there.rank != lora.rank {
        return different("tuning.rank", lora.rank.to_string(), there.rank.to_string());
    }
    if there.alpha != lora.alpha {
        return different("tuning.alpha", lora.alpha.to_string(), there.alpha.to_string());
    }
    if targets(&there) != targets(lora) {
        let quoted = |lora: &Lora| format!("\"{}\"", lora.target_modules);
        return different("tuning.target_modules", quoted(lora), quoted(&there));
    }
    Ok(())
}

/// The tensors of a folder.
#[derive(Debug)]
pub struct AdapterFile {
    file: TensorFile,
    /// Of virtual tokens, by name.
    parts: HashMap<String, Part>,
}

impl AdapterFile {
    /// # Errors
    /// A missing or damaged file, and every tensor that is not one of the adapter parameters in `expected`.
    pub fn open(folder: &Path, expected: &Table) -> Result<Self, String> {
        let mut file = Self { file: TensorFile::open(&folder.join(TENSORS))?, parts: HashMap::new() };
        let mut problems = Vec::new();
        let parts = virtual_tokens::parts(&file.file, expected);
        let of_virtual_tokens = !matches!(parts, Ok(None));
        match parts {
            Ok(parts) => file.parts = parts.unwrap_or_default(),
            Err(problem) => problems.push(problem),
        }
        let fits = problems.is_empty();
        for Entry { name, shape, .. } in adapters(expected).filter(|_| fits) {
            match file.get(name) {
                None => problems.push(format!("  missing: {name} {shape:?}")),
                Some(tensor) if tensor.shape() != shape => {
                    problems
                        .push(format!("  wrong shape: {name} is {:?}, expected {shape:?}", tensor.shape()));
                }
                Some(tensor) if float(tensor.dtype()).is_none() => {
                    problems.push(format!("  wrong dtype: {name} is {:?}", tensor.dtype()));
                }
                Some(_) => {}
            }
        }
        let known: BTreeSet<&str> = adapters(expected).map(|entry| entry.name.as_str()).collect();
        let names = if of_virtual_tokens { Vec::new() } else { file.file.names() };
        let unexpected = names.into_iter().filter(|name| !known.contains(plain_name(name).as_str()));
        problems.extend(unexpected.map(|name| format!("  unexpected: {name}")));
        if problems.is_empty() {
            return Ok(file);
        }
        const MOST: usize = 8;
        let more = problems.len().saturating_sub(MOST);
        problems.truncate(MOST);
        problems.extend((more > 0).then(|| format!("  and {more} more")));
        Err(format!(
            "the adapter in {} is of another model, or of other layers:\n{}\nname the model that it was trained with",
            folder.display(),
            problems.join("\n")
        ))
    }

    /// A parameter by its name in the model.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        match self.parts.get(name) {
            Some(part) => Some(part.view()),
            None => self.file.tensor(&format!("{WRAPPED}{name}")),
        }
    }
}

/// Writes an adapter, whose parameters `value` has by name. `base`: the folder of the model's weights; `transposed`:
/// whether its layers keep W as [inputs, outputs].
pub fn write(
    folder: &Path,
    lora: &Lora,
    (base, transposed): (Option<&Path>, bool),
    table: &Table,
    value: &mut dyn FnMut(&str) -> TensorData,
) -> io::Result<()> {
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": lora.targets().collect::<Vec<_>>(),
        "bias": "none",
        "fan_in_fan_out": transposed,
        "inference_mode": true,
        "init_lora_weights": true,
    });
    fs::write(folder.join(CONFIG), serde_json::to_vec_pretty(&config)?)?;
    let wrapped = |entry: &Entry| Entry { name: format!("{WRAPPED}{}", entry.name), ..entry.clone() };
    let entries = adapters(table).map(wrapped).collect();
    let unwrapped = |name: &str| value(name.strip_prefix(WRAPPED).expect("wrapped"));
    write_weights(&folder.join(TENSORS), &Table { entries }, (MARK, RUNNER), unwrapped)
        .map_err(io::Error::other)
}
