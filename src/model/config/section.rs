//! [`LanguageModel`]: the recipe's `[model]` section of a language model.
//!
//! Dimensions come from a preset, from keys written beside it (which override the preset's), or
//! from the `config.json` of a folder of weights, which no written key may contradict.

use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::gpt2::{Gpt2Config, Gpt2Keys};
use super::llama::{LlamaConfig, LlamaKeys};
use super::{Architecture, ConfigError, from_hugging_face, presets};
use crate::params::WeightsFrom;
use crate::words::key::{DefaultValue, Key, Section, Values};
use crate::words::nearest;

/// `[model] kind = "qwen2" | "llama" | "gpt2"`, resolved. It serialises as all of its dimensions,
/// and deserialises from those as well as from what a user types.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LanguageModel<Config> {
    pub preset: Option<String>,
    pub weights: WeightsFrom,
    #[serde(flatten)]
    pub config: Config,
}

/// The keys that every language model has.
pub const SECTION: Section = Section::of(
    "model",
    "kind",
    &["qwen2", "llama", "gpt2"],
    "A language model: a published one by its `preset`, one in a folder, or of the sizes that are written.",
    &[
        Key::size(
            "preset",
            Values::Text,
            DefaultValue::Nothing,
            "A published model: its sizes, which others may override.",
        )
        .without("no preset"),
        Key::method(
            "weights",
            Values::Path(&["random"]),
            DefaultValue::Word("random"),
            "Drawn from the seed, or a Hugging Face folder, whose config.json then gives the sizes.",
        )
        .reads(&[("", "{} weights")]),
    ],
);

impl LanguageModel<LlamaConfig> {
    /// For `#[serde(deserialize_with)]` on the kind's variant.
    pub fn qwen2<'de, D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        resolve("qwen2", LlamaKeys::deserialize(d)?).map_err(Error::custom)
    }

    /// For `#[serde(deserialize_with)]` on the kind's variant.
    pub fn llama<'de, D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        resolve("llama", LlamaKeys::deserialize(d)?).map_err(Error::custom)
    }
}

impl LanguageModel<Gpt2Config> {
    /// For `#[serde(deserialize_with)]` on the kind's variant.
    pub fn gpt2<'de, D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        resolve("gpt2", Gpt2Keys::deserialize(d)?).map_err(Error::custom)
    }
}

/// A size of a language model, which a preset decides where it is not written.
pub(super) const fn size(
    name: &'static str,
    values: Values,
    default: DefaultValue,
    doc: &'static str,
) -> Key {
    Key::size(name, values, default, doc).follows(&["model.preset"])
}

pub(super) const fn tied(default: DefaultValue) -> Key {
    Key::method(
        "tie_word_embeddings",
        Values::Bool,
        default,
        "Whether the output projection is the embedding.",
    )
    .reads(&[("true", "tied embeddings"), ("", "untied embeddings")])
    .follows(&["model.preset"])
}

/// The keys of `[model]` as written, each absent or present.
trait Keys: Serialize + DeserializeOwned {
    type Config: Serialize;

    /// Takes `preset` and `weights` out, which leaves the dimensions.
    fn take_source(&mut self) -> (Option<String>, Option<WeightsFrom>);
    fn preset(kind: &str, name: &str) -> Option<Self>;
    fn finish(self, kind: &str) -> Result<Self::Config, ConfigError>;
    fn of(architecture: Architecture) -> Option<Self::Config>;
}

impl Keys for LlamaKeys {
    type Config = LlamaConfig;

    fn take_source(&mut self) -> (Option<String>, Option<WeightsFrom>) {
        (self.preset.take(), self.weights.take())
    }

    fn preset(kind: &str, name: &str) -> Option<Self> {
        presets::llama_like(kind, name)
    }

    fn finish(self, kind: &str) -> Result<LlamaConfig, ConfigError> {
        Self::finish(self, kind)
    }

    fn of(architecture: Architecture) -> Option<LlamaConfig> {
        match architecture {
            Architecture::Qwen2(config) | Architecture::Llama(config) => Some(config),
            Architecture::Gpt2(_) => None,
        }
    }
}

impl Keys for Gpt2Keys {
    type Config = Gpt2Config;

    fn take_source(&mut self) -> (Option<String>, Option<WeightsFrom>) {
        (self.preset.take(), self.weights.take())
    }

    fn preset(_: &str, name: &str) -> Option<Self> {
        presets::gpt2(name)
    }

    fn finish(self, _: &str) -> Result<Gpt2Config, ConfigError> {
        Self::finish(self)
    }

    fn of(architecture: Architecture) -> Option<Gpt2Config> {
        match architecture {
            Architecture::Gpt2(config) => Some(config),
            Architecture::Qwen2(_) | Architecture::Llama(_) => None,
        }
    }
}

fn resolve<K: Keys>(kind: &str, mut keys: K) -> Result<LanguageModel<K::Config>, ConfigError> {
    let (preset, weights) = keys.take_source();
    let weights = weights.unwrap_or_default();
    let mut written = match &preset {
        Some(name) => present(&K::preset(kind, name).ok_or_else(|| unknown_preset(kind, name))?),
        None => Map::new(),
    };
    written.extend(present(&keys));
    let config = match &weights {
        WeightsFrom::Random => serde_json::from_value::<K>(Value::Object(written))
            .map_err(|e| ConfigError::new(e.to_string()))?
            .finish(kind)?,
        WeightsFrom::Folder(folder) => {
            let found = from_hugging_face(folder)?;
            let found_kind = found.kind();
            let config = K::of(found).filter(|_| found_kind == kind).ok_or_else(|| {
                ConfigError::new(format!(
                    "{} holds a {found_kind} model; write kind = \"{found_kind}\"",
                    folder.display()
                ))
            })?;
            let actual = present(&config);
            if let Some((key, value)) = written.iter().find(|(key, value)| actual.get(*key) != Some(value)) {
                let actual = actual.get(key).unwrap_or(&Value::Null);
                let source = preset.as_ref().map_or(String::new(), |name| format!(" or the preset {name}"));
                return Err(ConfigError::new(format!(
                    "{key} = {value} contradicts {}, where it is {actual}; remove the key{source}",
                    folder.join("config.json").display(),
                )));
            }
            config
        }
    };
    Ok(LanguageModel { preset, weights, config })
}

/// The keys that have a value.
fn present(keys: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(keys) {
        Ok(Value::Object(map)) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

fn unknown_preset(kind: &str, name: &str) -> ConfigError {
    let known = presets::names(kind);
    let list = known.join(", ");
    let hint = nearest(name, &known).map_or(String::new(), |best| format!("did you mean \"{best}\"? "));
    ConfigError::new(format!("unknown preset \"{name}\" of kind {kind}; {hint}its presets are: {list}"))
}
