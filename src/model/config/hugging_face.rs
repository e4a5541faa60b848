//! Dimensions from a Hugging Face `config.json`. Keys are read as transformers reads them. A key that would change what
//! the model computes is refused, apart from dropout rates: the runner trains without dropout.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use burn::tensor::DType;
use serde_json::{Map, Value, json};

use super::dimensions::JSON;
use super::section::{complete, present};
use super::{Common, Dimensions, refused};
use crate::common::text::without_mark;
use crate::keys::Key;
use crate::model::Model;
use crate::model::families::Family;
use crate::params::hub::{self, HubName, Needs};
use crate::params::save::{MARK, RUNNER};
use crate::params::weights::found;

/// The model that a folder of weights holds.
///
/// # Errors
/// A missing or damaged file, a missing key, or a key whose value is not supported, named.
pub fn from_hugging_face(folder: &Path) -> Result<Model, String> {
    let file = ConfigFile::read(folder)?;
    let kind = file.supported_kind(folder)?;
    // A folder may be called `random`, a word that means other weights.
    let is_on_hub = HubName::parse(folder).is_some();
    let weights = if is_on_hub { folder.to_path_buf() } else { Path::new(".").join(folder) };
    let weights = weights
        .to_str()
        .ok_or_else(|| format!("the name of the folder {} is not UTF-8; rename it", folder.display()))?;
    let section = json!({ kind: { "weights": weights } });
    serde_json::from_value(section).map_err(|e| e.to_string())
}

/// The kind of the model that a folder of weights holds.
///
/// # Errors
/// A missing or damaged `config.json`, or a kind that is not supported.
pub fn kind_of(folder: &Path) -> Result<String, String> {
    ConfigFile::read(folder)?.supported_kind(folder).map(String::from)
}

/// The `config.json` of a model whose weights are stored in this type. `base`: that of its first weights, which stays as it
/// is but for what is another now. `pad`: the padding token. `ends`: the tokens that end a text, where they are not those of `base`.
pub fn to_hugging_face(
    (family, config): (&'static Family, &Dimensions),
    pad: Option<usize>,
    stored: DType,
    base: Option<ConfigFile>,
    ends: Option<&[u32]>,
) -> Value {
    let mut own = Map::new();
    for (key, value) in present(config) {
        let name = family.section.keys.iter().find(|known| known.name == key).map_or("", |known| known.name);
        let json =
            value.as_str().filter(|_| JSON.contains(&name)).and_then(|text| serde_json::from_str(text).ok());
        own.insert(family.name_in_file(name).into(), json.unwrap_or(value));
    }
    own.remove("");
    // Phi-3's counts beside the table.
    let original = own.get("rope_scaling").and_then(|table| table.get("original_max_position_embeddings"));
    if let Some(original) = original.cloned() {
        own.insert("original_max_position_embeddings".into(), original);
    }
    // Where a file has none, transformers takes another.
    if pad.is_some() || family.padding.is_some() {
        own.insert("pad_token_id".into(), json!(pad));
    }
    let switch = family.window_switch.filter(|_| config.sliding_window.is_some());
    own.extend(switch.map(|switch| (switch.into(), json!(true))));
    let (field, default) = family.activation;
    let activation = config.activation.as_deref().unwrap_or(default);
    own.extend([("architectures".into(), json!([family.class])), (field.into(), json!(activation))]);
    let mut file = match base {
        // The weights have a head now, also where they had none.
        Some(ConfigFile { keys: mut file, .. }) => {
            file.extend(own.remove_entry("architectures"));
            file
        }
        None => own,
    };
    let stored = match stored {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "float32",
    };
    // The newer and the older name.
    let there: Vec<&str> =
        ["dtype", "torch_dtype"].into_iter().filter(|key| file.contains_key(*key)).collect();
    let dtypes = if there.is_empty() { vec!["torch_dtype"] } else { there };
    file.extend(dtypes.iter().map(|key| (key.to_string(), json!(stored))));
    file.extend([("model_type".into(), json!(family.kind)), (MARK.into(), json!(RUNNER))]);
    if let Some(ends) = ends {
        with_ends(&mut file, ends);
    }
    Value::Object(file)
}

/// Names the tokens that begin and end a text, in a `config.json` or `generation_config.json`.
pub fn with_ends(file: &mut Map<String, Value>, ends: &[u32]) {
    let all = if ends.len() > 1 { json!(ends) } else { json!(ends.first()) };
    file.extend([("bos_token_id".into(), json!(ends.first())), ("eos_token_id".into(), all)]);
}

/// Names that transformers reads in place of a family's own, such as `n_embd`.
const ALIASES: [&str; 4] =
    ["hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings"];

/// The keys of a `config.json`.
pub struct ConfigFile {
    keys: Map<String, Value>,
    /// Those that were looked at: what is left over has no effect.
    asked: RefCell<BTreeSet<String>>,
}

impl ConfigFile {
    /// # Errors
    /// When the folder has none, or one that is damaged.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let folder = &hub::fetched(folder, Needs::Description)?;
        found::folder(folder)?;
        let path = folder.join("config.json");
        if !path.exists() {
            return Err(found::lacks(folder, "config.json"));
        }
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| {
            let other = found::other_content(&path);
            other.unwrap_or_else(|| format!("{} is not a JSON object: {e}", path.display()))
        })
    }

    /// # Errors
    /// When the text is no JSON object.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let keys = serde_json::from_str(without_mark(text))?;
        Ok(Self { keys, asked: RefCell::default() })
    }

    fn kind(&self) -> &str {
        self.get("model_type").and_then(Value::as_str).unwrap_or("(missing)")
    }

    /// # Errors
    /// When the file, of this folder, is of a family that the runner does not have.
    fn supported_kind(&self, folder: &Path) -> Result<&str, String> {
        let kind = self.kind();
        Model::LANGUAGE.contains(&kind).then_some(kind).ok_or_else(|| {
            format!("{}: {}", folder.join("config.json").display(), refused::reason(kind, self))
        })
    }

    /// The dimensions of the model in this folder.
    ///
    /// # Errors
    /// When it is of another family, or its dimensions cannot be used.
    pub fn model(&self, family: &'static Family, folder: &Path) -> Result<Dimensions, String> {
        let kind = self.supported_kind(folder)?;
        if kind != family.kind {
            return Err(format!("{} holds a {kind} model; write kind = \"{kind}\"", folder.display()));
        }
        let missing =
            |missing: Vec<&'static str>| format!("the key `{}` is missing", family.name_in_file(missing[0]));
        self.written(family)
            .and_then(|written| complete(family, written, missing))
            .map_err(|e| format!("{}: {e}", folder.join("config.json").display()))
    }

    /// What else the model in this folder has.
    ///
    /// # Errors
    /// A key whose value cannot be used.
    pub fn common(&self, family: &Family, folder: &Path, vocab_size: usize) -> Result<Common, String> {
        let common = Common::read(family, self, vocab_size);
        common.map_err(|e| format!("{}: {e}", folder.join("config.json").display()))
    }

    /// The dimensions that are written in the file.
    ///
    /// # Errors
    /// A key whose value is not supported.
    pub fn written(&self, family: &'static Family) -> Result<Map<String, Value>, String> {
        refused::quantized(self)?;
        self.only("is_causal", json!(true))?;
        for (name, value) in family.fixed {
            self.only(name, value.value().unwrap_or_default())?;
        }
        // Heads that were cut out.
        if self
            .get("pruned_heads")
            .is_some_and(|heads| heads.as_object().is_none_or(|heads| !heads.is_empty()))
        {
            return Err("pruned_heads is not supported; only heads that are all there are".into());
        }
        let mut written = Map::new();
        for Key { name: key, values, .. } in family.section.keys {
            let in_file = family.name_in_file(key);
            let alias = if ALIASES.contains(key) { self.get(key) } else { None };
            let value = match (self.get(in_file), alias) {
                (Some(value), Some(alias)) if value != alias => {
                    return Err(format!("{key} and {in_file} differ; remove the wrong one"));
                }
                (Some(value), _) | (None, Some(value)) => value,
                (None, None) => continue,
            };
            let text = JSON.contains(key).then(|| Value::String(value.to_string()));
            let value = text.as_ref().unwrap_or(value);
            let read = values.check(value).and_then(|()| serde_json::from_value(json!({ *key: value })));
            let dimension: Dimensions =
                read.map_err(|e: serde_json::Error| match e.to_string().split_once(", expected ") {
                    Some((_, expected)) => wrong_type(in_file, value, expected),
                    None => format!("{in_file} {e}"),
                })?;
            written.extend(present(&dimension));
        }
        self.read_activation(family, &mut written)?;
        (family.read)(self, &mut written)?;
        Ok(written)
    }

    /// A key's value; `None` where it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.raw(key).filter(|value| !value.is_null())
    }

    /// A key's value, be it null.
    pub(super) fn raw(&self, key: &str) -> Option<&Value> {
        self.asked.borrow_mut().insert(key.into());
        self.keys.get(key)
    }

    /// The keys that were looked at so far.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    /// All keys that are there.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// A number above 0; `None` where it is absent or null.
    ///
    /// # Errors
    /// Another value.
    pub fn positive(&self, key: &str) -> Result<Option<f64>, String> {
        number(key, self.raw(key))
    }

    /// Whether the key is there, be it null.
    pub fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// Refuses every value of a key but `supported`, which is transformers' default.
    ///
    /// # Errors
    /// When it has another.
    pub fn only(&self, key: &str, supported: Value) -> Result<(), String> {
        self.raw(key).map_or(Ok(()), |value| Self::refuse_unless(key, value, &supported))
    }

    /// # Errors
    /// When the value of the key is neither null nor `supported`.
    pub fn refuse_unless(key: &str, value: &Value, supported: &Value) -> Result<(), String> {
        let same_number = value.is_number() && value.as_f64() == supported.as_f64();
        if value.is_null() || value == supported || same_number {
            return Ok(());
        }
        let supported = if supported.is_null() { "its absence".into() } else { supported.to_string() };
        Err(format!("{key} = {value} is not supported; only {supported} is"))
    }
}

/// A finite number above zero.
fn number(key: &str, value: Option<&Value>) -> Result<Option<f64>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(x) if x > 0.0 => Ok(Some(x)),
            _ => Err(wrong_type(key, value, "a number above 0")),
        },
    }
}

pub(super) fn wrong_type(key: &str, value: &Value, expected: &str) -> String {
    format!("{key} must be {expected}, not {value}")
}
