//! [`LanguageModel`]: the recipe's `[model]` section of a language model.
//!
//! Dimensions come from a preset, from keys that are also written (which override the preset's), or
//! from the `config.json` of a folder of weights, which no written key may contradict.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use burn::tensor::DType;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Common, ConfigFile};
use crate::common::{DeviceId, locked};
use crate::keys::values::Values;
use crate::keys::{Key, nearest};
use crate::model::families::Family;
use crate::model::language::{Computation, Decoder, DecoderSizes};
use crate::model::{Kind, Parts};
use crate::ops::cost::Operators;
use crate::ops::cost::{Setting, Trained};
use crate::ops::dense::WeightLayout;
use crate::ops::embedding;
use crate::params::WeightsFrom;
use crate::params::source::Source;
use crate::params::table::{Entry, Group, Table, Tuning};
use crate::params::tuning::LinearLayer;
use crate::params::weights::Weights;
use crate::residence::{Placement, Sharding};

/// `[model] kind = "qwen2" | "llama" | "gpt2"`, resolved. It serialises as all of its dimensions,
/// and deserialises from those as well as from what a user types.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(bound = "")]
pub struct LanguageModel<F: Family> {
    pub preset: Option<String>,
    pub weights: WeightsFrom,
    #[serde(flatten)]
    pub config: F::Config,
    #[serde(flatten)]
    pub common: Common,
    /// Counted once: rules and estimates ask for it many times a cell.
    #[serde(skip)]
    parameters: u64,
}

/// A size of a language model; a preset decides it where it is not written.
pub const fn size(values: Values) -> Key {
    Key::size(values).follows(&["model.preset"])
}

/// A way of computing of a language model; a preset decides it where it is not written.
pub const fn method(values: Values) -> Key {
    Key::method(values).follows(&["model.preset"])
}

/// Whether the head is the embedding.
pub const fn tied(default: bool) -> Key {
    Key::flag(default).follows(&["model.preset"])
}

impl<F: Family> Kind for LanguageModel<F> {
    type Network = Decoder<F>;
}

impl<'de, F: Family> Deserialize<'de> for LanguageModel<F> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::resolve(&F::Keys::deserialize(d)?).map_err(Error::custom)
    }
}

/// The number of parameters. It is counted once for each configuration: the cells of a grid mostly share one, and a table
/// names every parameter.
fn parameters_of<F: Family>(config: &F::Config) -> u64 {
    static COUNTED: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
    let name = format!("{} {}", F::KIND, serde_json::to_string(config).expect("plain data"));
    let known = locked(&COUNTED).get(&name).copied();
    known.unwrap_or_else(|| {
        let count = count::<F>(config);
        locked(&COUNTED).insert(name, count);
        count
    })
}

fn count<F: Family>(config: &F::Config) -> u64 {
    // Every block has the same.
    let table = Decoder::<F>::table(config, 1, DType::F32, &Tuning::default());
    let block = table.elements(|entry| entry.group == Group::Block(0));
    let others = table.elements(|entry| entry.group != Group::Block(0));
    let layers = F::outline(config).shape.layers as u128;
    u64::try_from(block.saturating_mul(layers).saturating_add(others)).unwrap_or(u64::MAX)
}

impl<F: Family> LanguageModel<F> {
    fn resolve(keys: &F::Keys) -> Result<Self, String> {
        let mut keys = present(keys);
        let mut text = |key: &str| match keys.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (preset, weights) = (text("preset"), text("weights").map(WeightsFrom::from).unwrap_or_default());
        let mut written = match &preset {
            Some(name) => preset_of::<F>(name)?,
            None => Map::new(),
        };
        written.extend(keys);
        let beside = written.clone();
        let mut common = Common::take::<F>(&mut written)?;
        let config = match &weights {
            WeightsFrom::Random => complete::<F>(written, |missing| {
                let keys: Vec<&str> = missing.iter().map(|(key, _)| key.name).collect();
                let keys = keys.join(", ");
                format!("model dimensions are missing: {keys}; write them or name a `preset`")
            })?,
            // Recipes are checked, and rows read, also on machines without the weights: there the written sizes count.
            WeightsFrom::Folder(folder)
                if !folder.exists() && complete::<F>(written.clone(), |_| String::new()).is_ok() =>
            {
                complete::<F>(written, |_| String::new())?
            }
            WeightsFrom::Folder(folder) => {
                let file = ConfigFile::read(folder)?;
                let config = file.model::<F>(folder)?;
                common = file.common::<F>(folder, F::outline(&config).shape.vocab_size)?;
                common.agree(&beside)?;
                let actual = present(&config);
                if let Some((key, value)) =
                    written.iter().find(|(key, value)| actual.get(*key) != Some(value))
                {
                    let actual = actual.get(key).unwrap_or(&Value::Null);
                    let source =
                        preset.as_ref().map_or(String::new(), |name| format!(" or the preset {name}"));
                    return Err(format!(
                        "{key} = {value} contradicts {}, where it is {actual}; remove the key{source}",
                        folder.join("config.json").display(),
                    ));
                }
                config
            }
        };
        let parameters = parameters_of::<F>(&config);
        Ok(Self { preset, weights, config, common, parameters })
    }

    /// Its sizes, with the number of its parameters: at most `u64::MAX`.
    pub fn shape(&self) -> DecoderSizes {
        DecoderSizes { parameters: self.parameters, ..F::outline(&self.config).shape }
    }

    /// Its operators, with the adapters of `tuning`.
    pub fn operators(&self, setting: &Setting, tuning: &Tuning) -> Operators {
        let block = F::block_operators(&self.config, setting, tuning);
        let mut operators = F::outline(&self.config).operators(setting, tuning, block);
        if self.common.pad_token_id.is_some() {
            embedding::add_padding(&mut operators.first[0], setting, self.shape().hidden_size as u64);
        }
        if setting.trained == Trained::NONE && tuning.adapter.is_none() && tuning.virtual_tokens.is_none() {
            let Operators { first, block, last, .. } = &mut operators;
            let head = last.len() - 1;
            let before = first.iter_mut().chain(block).chain(&mut last[..head]);
            before.for_each(|cost| *cost = cost.without_backward());
        }
        operators
    }

    /// The linear layers of a block.
    pub fn linear_layers(&self) -> Vec<LinearLayer> {
        let table = Decoder::<F>::table(&self.config, 1, DType::F32, &Tuning::default());
        let layer = |entry: &Entry| {
            let path = entry.name.strip_suffix(".weight").filter(|_| entry.group == Group::Block(0))?;
            let sizes = <[usize; 2]>::try_from(entry.shape.as_slice()).ok()?;
            let name = path.rsplit('.').next().unwrap_or(path).to_string();
            // [inputs, outputs], or the other way round.
            Some((name, if F::LAYOUT == WeightLayout::InOut { sizes } else { [sizes[1], sizes[0]] }))
        };
        table.entries.iter().filter_map(layer).collect()
    }

    /// Its parameters, stored in this type.
    pub fn table(&self, dtype: DType, tuning: &Tuning) -> Table {
        let layers = F::outline(&self.config).shape.layers;
        Decoder::<F>::table(&self.config, layers, dtype, tuning)
    }

    /// Whether its folder of weights, where it has one, is of its dimensions: before anything is counted with them.
    ///
    /// # Errors
    /// Which parameters are missing, of another shape, or not the model's.
    pub fn check_weights(&self) -> Result<(), String> {
        match &self.weights {
            WeightsFrom::Random => Ok(()),
            WeightsFrom::Folder(folder) => {
                Weights::open(folder)?.check(&self.table(DType::F32, &Tuning::default()), self.shape().tied)
            }
        }
    }

    /// The source of its parameters.
    ///
    /// # Errors
    /// When its weights cannot be used.
    pub fn source(&self, device: DeviceId, dtype: DType, tuning: &Tuning) -> Result<Source, String> {
        let table = (&self.table(dtype, tuning), self.shape().tied);
        let source = Source::open(&self.weights, table, device, dtype, tuning)?;
        Ok(source.drawn_within(self.common.initializer_range))
    }

    /// As [`Decoder::new`].
    pub fn network(
        &self,
        positions: usize,
        source: &Source,
        computation: Computation,
        homes: (Option<Placement>, Option<Sharding>),
        parts: Parts,
    ) -> Decoder<F> {
        let decoder = Decoder::new(&self.config, positions, source, computation, homes, parts);
        decoder.padded_with(self.common.pad_token_id)
    }
}

/// A key of `[model]`, and its name in `config.json`.
pub(super) type Dimension = (&'static Key, &'static str);

/// Those of a family.
pub(super) fn keys_of<F: Family>() -> impl Iterator<Item = Dimension> {
    F::SECTION.keys.iter().zip(F::IN_FILE.iter().copied())
}

/// All dimensions, from those that are written; `message`: what to say of required ones that are not.
pub(super) fn complete<F: Family>(
    mut written: Map<String, Value>,
    message: impl Fn(Vec<Dimension>) -> String,
) -> Result<F::Config, String> {
    let missing: Vec<Dimension> = keys_of::<F>()
        .filter(|(key, _)| key.default.is_required() && !written.contains_key(key.name))
        .collect();
    if !missing.is_empty() {
        return Err(message(missing));
    }
    for Key { name, default, .. } in F::SECTION.keys {
        if let Some(default) = default.value() {
            written.entry(*name).or_insert(default);
        }
    }
    let plain = |e: serde_json::Error| e.to_string();
    let mut keys: F::Keys = serde_json::from_value(Value::Object(written)).map_err(plain)?;
    F::complete(&mut keys)?;
    serde_json::from_value(Value::Object(present(&keys))).map_err(plain)
}

/// The keys that have a value.
pub(super) fn present(keys: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(keys) {
        Ok(Value::Object(map)) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

fn preset_of<F: Family>(name: &str) -> Result<Map<String, Value>, String> {
    if let Some((_, text)) = F::PRESETS.iter().find(|(preset, _)| *preset == name) {
        return ConfigFile::parse(text).expect("a preset is a JSON object").written::<F>();
    }
    let known: Vec<&str> = F::PRESETS.iter().map(|(preset, _)| *preset).collect();
    let list = known.join(", ");
    let hint = nearest(name, &known).map_or(String::new(), |best| format!("did you mean \"{best}\"? "));
    let kind = F::KIND;
    Err(format!("unknown preset \"{name}\" of kind {kind}; {hint}its presets are: {list}"))
}
