//! PEFT's folder of an adapter: `adapter_config.json` and `adapter_model.safetensors`. A method is one file.

mod file;
mod lora;
mod virtual_tokens;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use itertools::Itertools;
use serde_json::{Map, Value, json};

use super::table::{Entry, Group, Table};
use super::tuning::{Lora, Prefix, Prompt, TuningConfig, VirtualTokenKeys, VirtualTokens};
use super::weights::{HEAD, Weights, found};
use crate::keys::Rule;
use crate::ops::dense::WeightLayout;

pub use file::AdapterFile;

pub const CONFIG: &str = "adapter_config.json";
pub const TENSORS: &str = "adapter_model.safetensors";
/// Problems that an error lists.
const MOST: usize = 8;
/// What PEFT puts before the names of a model's layers.
const WRAPPED: &str = "base_model.model.";
/// A parameter's name in a model without PEFT: `base_model.model.model.layers.0.q_proj.lora_A.default.weight`, as a
/// live model has it, is `model.layers.0.q_proj.lora_A.weight`.
pub fn plain_name(name: &str) -> String {
    name.replacen(WRAPPED, "", 1).replace(".default.", ".")
}

/// The name of a parameter in an adapter's file. `is_adapted`: whether its layer has an adapter, behind which PEFT hides the
/// layer's own bias.
fn wrapped(name: &str, is_adapted: bool) -> String {
    match name.strip_suffix(".bias").filter(|_| is_adapted) {
        Some(layer) => format!("{WRAPPED}{layer}.base_layer.bias"),
        None => format!("{WRAPPED}{name}"),
    }
}

/// A method that PEFT has too, with its settings.
#[derive(Clone, Copy, Debug)]
pub enum PeftType<'a> {
    Lora(&'a Lora),
    VirtualTokens(VirtualTokens),
}

impl PeftType<'_> {
    /// PEFT's name.
    fn name(self) -> &'static str {
        match self {
            Self::Lora(_) => "LORA",
            Self::VirtualTokens(VirtualTokens::Embeddings(_)) => "PROMPT_TUNING",
            Self::VirtualTokens(VirtualTokens::KeysAndValues(_)) => "PREFIX_TUNING",
        }
    }

    /// Refuses a folder of first values of another method, or of other settings.
    ///
    /// # Errors
    /// The key, and what to write.
    pub fn check(self, folder: &Path) -> Result<(), Rule> {
        let cannot_read = |e| Rule::new(&["tuning.adapter"], e, "name another folder");
        let there = method(folder).map_err(cannot_read)?;
        let there = there.peft_type().expect("of a folder of PEFT's");
        if self.name() != there.name() {
            return Err(Rule::new(
                &["tuning.adapter", "tuning.method"],
                format!(
                    "the adapter in {} has another method, PEFT's {}; this cell's is {}",
                    folder.display(),
                    there.name(),
                    self.name()
                ),
                "name another folder, or another tuning.method",
            ));
        }
        let different = match (self, there) {
            (Self::Lora(ours), PeftType::Lora(theirs)) => lora::difference(ours, theirs),
            (Self::VirtualTokens(ours), PeftType::VirtualTokens(theirs)) => {
                let counts = [theirs, ours].map(|tokens| tokens.count().to_string());
                (ours != theirs).then_some(("tuning.num_virtual_tokens", counts))
            }
            // They have another name.
            _ => None,
        };
        different.map_or(Ok(()), |(key, [theirs, ours])| {
            let message =
                format!("the adapter in {} has {key} = {theirs}, and this cell {ours}", folder.display());
            Err(Rule::new(&[key], message, format!("write {key} = {theirs}, or name another adapter")))
        })
    }

    /// Writes what is added to a model, whose parameters `value` has by name. `base`: the folder of the model's weights;
    /// `layout`: how the weights of its linear layers lie.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(
        self,
        folder: &Path,
        (base, layout): (Option<&Path>, WeightLayout),
        table: &Table,
        value: &mut dyn FnMut(&str) -> TensorData,
    ) -> io::Result<()> {
        let has_encoder = table.entries.iter().any(|entry| entry.name.starts_with("encoder."));
        let mut config = json!({
            "peft_type": self.name(),
            "task_type": if has_encoder { "SEQ_2_SEQ_LM" } else { "CAUSAL_LM" },
            "base_model_name_or_path": base,
            "inference_mode": true,
        });
        let own = match self {
            Self::Lora(settings) => lora::config(settings, layout, table),
            Self::VirtualTokens(tokens) => virtual_tokens::config(tokens),
        };
        config.as_object_mut().expect("made as an object").extend(own);
        let first = match self {
            Self::Lora(settings) => settings.adapter.as_deref().map(Path::new),
            Self::VirtualTokens(_) => None,
        };
        let kept = first.map_or(Ok(Vec::new()), |first| AdapterFile::own(first, table));
        let mut kept = kept.map_err(io::Error::other)?;
        let own = table.entries.iter().filter(|entry| entry.trainable && !entry.group.is_added());
        kept.extend(own);
        kept = kept.into_iter().unique_by(|entry| &entry.name).collect();
        if let Some(first) = first {
            let first = Config::read(first).map_err(io::Error::other)?;
            for key in ["modules_to_save", "ensure_weight_tying"] {
                config[key] = first.get(key).clone();
            }
            if config["bias"] == "none" && !first.get("bias").is_null() {
                config["bias"] = first.get("bias").clone();
            }
        }
        if let Self::Lora(settings) = self
            && settings.modules_to_save.is_some()
        {
            config["modules_to_save"] = json!(settings.modules().collect::<Vec<_>>());
            config["ensure_weight_tying"] = json!(!table.entries.iter().any(|entry| entry.name == HEAD));
        }
        fs::write(folder.join(CONFIG), serde_json::to_vec_pretty(&config)?)?;
        let path = folder.join(TENSORS);
        match self {
            Self::Lora(_) => {
                let ties = config["ensure_weight_tying"] == true;
                let first = base.and_then(|base| Weights::open(base).ok());
                let is_inner = first.is_some_and(|first| first.inner().is_some());
                lora::write(&path, (table, is_inner), (&kept[..], ties), value)
            }
            Self::VirtualTokens(_) => virtual_tokens::write(&path, table, value),
        }
    }
}

/// The `adapter_config.json` of a folder.
struct Config {
    path: PathBuf,
    keys: Map<String, Value>,
}

impl Config {
    fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join(CONFIG);
        if !path.exists() {
            found::folder(folder)?;
            let why = found::lacks(folder, CONFIG);
            return Err(format!("{why}; name a folder that PEFT's save_pretrained has written"));
        }
        let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let mut config = Self { path, keys: Map::new() };
        config.keys = serde_json::from_str(&text).map_err(|e| {
            let other = found::other_content(&config.path);
            other.unwrap_or_else(|| config.wrong(&format!("it is not a JSON object: {e}")))
        })?;
        Ok(config)
    }

    /// Null where it has no such key.
    fn get(&self, key: &str) -> &Value {
        self.keys.get(key).unwrap_or(&Value::Null)
    }

    /// An error about the file.
    fn wrong(&self, what: &str) -> String {
        format!("{}: {what}", self.path.display())
    }

    /// Refuses what is not PEFT's default of keys that change what is computed.
    fn only_defaults(&self, keys: &[&str]) -> Result<(), String> {
        let is_default = |value: &Value| {
            let empty =
                value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
            value.is_null() || *value == false || *value == "none" || empty
        };
        match keys.iter().find(|key| !is_default(self.get(key))) {
            None => Ok(()),
            Some(key) => Err(self.wrong(&format!("{key} = {} is not supported", self.get(key)))),
        }
    }
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
    let config = Config::read(folder)?;
    let virtual_tokens = || -> Result<VirtualTokenKeys, String> {
        let num_virtual_tokens = virtual_tokens::count(&config)?;
        Ok(VirtualTokenKeys { num_virtual_tokens, adapter: Some(folder.display().to_string()) })
    };
    match config.get("peft_type").as_str() {
        Some("LORA") => Ok(TuningConfig::Lora(lora::read(&config, folder)?)),
        Some("PROMPT_TUNING") => Ok(TuningConfig::Prompt(Prompt(virtual_tokens()?))),
        Some("PREFIX_TUNING") => Ok(TuningConfig::Prefix(Prefix(virtual_tokens()?))),
        _ => Err(config.wrong(&format!(
            "peft_type {} is not supported here; \"LORA\", \"PROMPT_TUNING\" and \"PREFIX_TUNING\" are, each with its \
             own tuning.method",
            config.get("peft_type")
        ))),
    }
}

#[cfg(test)]
mod tests;
