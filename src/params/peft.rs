//! PEFT's folder of an adapter: `adapter_config.json` and `adapter_model.safetensors`. A method is one file.

mod lora;
mod virtual_tokens;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

use super::table::{Entry, Group, Table};
use super::tuning::{Lora, Prefix, Prompt, TuningConfig, VirtualTokenKeys, VirtualTokens};
use super::weights::{TensorFile, float, shortened};
use crate::ops::dense::WeightLayout;
use crate::words::Rule;
use virtual_tokens::Part;

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
                    "the adapter in {} is of another method: PEFT's {}, and this cell's is {}",
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
        let mut config = json!({
            "peft_type": self.name(),
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "inference_mode": true,
        });
        let own = match self {
            Self::Lora(settings) => lora::config(settings, layout),
            Self::VirtualTokens(tokens) => virtual_tokens::config(tokens),
        };
        config.as_object_mut().expect("made as an object").extend(own);
        fs::write(folder.join(CONFIG), serde_json::to_vec_pretty(&config)?)?;
        let path = folder.join(TENSORS);
        match self {
            Self::Lora(_) => lora::write(&path, table, value),
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
        let text = fs::read_to_string(&path).map_err(|e| {
            format!(
                "cannot read {}: {e}; name a folder that PEFT's save_pretrained has written",
                path.display()
            )
        })?;
        let mut config = Self { path, keys: Map::new() };
        config.keys = serde_json::from_str(&text)
            .map_err(|e| config.wrong(&format!("it is not a JSON object: {e}")))?;
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
        let file = TensorFile::open(&folder.join(TENSORS));
        let file = file.map_err(|e| format!("{e}; name a folder that PEFT's save_pretrained has written"))?;
        let mut file = Self { file, parts: HashMap::new() };
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
        Err(format!(
            "the adapter in {} is of another model, of other layers, or of another rank than its adapter_config.json \
             says:\n{}\nname the model that it was trained with; an adapter of only some of the layers with one name \
             (a path in its target_modules) cannot be read",
            folder.display(),
            shortened(&problems, MOST)
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

#[cfg(test)]
mod tests;
