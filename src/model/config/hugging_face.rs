//! Dimensions from a Hugging Face `config.json`. Keys are read as transformers reads them. A key that would change what
//! the model computes is refused, apart from dropout rates: the runner trains without dropout.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::dimensions::JSON;
use super::section::{complete, present};
use super::{Common, Dimensions, inner, refused};
use crate::common::text::without_mark;
use crate::keys::Key;
use crate::model::Model;
use crate::model::families::Family;
use crate::params::hub::{self, HubName, Needs};
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

/// Names that transformers reads in place of a family's own, such as `n_embd`.
const ALIASES: [&str; 4] =
    ["hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings"];

/// The keys of a `config.json`: those of the text part, where its model reads more.
pub struct ConfigFile {
    pub(super) keys: Map<String, Value>,
    /// All keys of a model that reads more than text.
    pub(super) whole: Option<Map<String, Value>>,
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
        let keys: Map<String, Value> = serde_json::from_str(without_mark(text))?;
        let (keys, whole) = match inner::text_part(&keys) {
            Some(text) => (text, Some(keys)),
            None => (keys, None),
        };
        Ok(Self { keys, whole, asked: RefCell::default() })
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
        let unused =
            family.whole.as_ref().filter(|_| self.whole.is_some()).map_or(&[][..], |whole| whole.unused);
        unused.iter().try_for_each(|name| self.only(name, Value::Null))?;
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

    /// The `model_type` of a model that reads more than the text of these keys.
    pub(super) fn whole(&self) -> Option<&str> {
        self.whole.as_ref()?.get("model_type")?.as_str()
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
