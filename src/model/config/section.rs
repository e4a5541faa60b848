//! [`LanguageModel`]: the recipe's `[model]` section of a language model.
//!
//! Dimensions come from a preset, from keys that are also written (which override the preset's), or
//! from the `config.json` of a folder of weights, which no written key may contradict.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use burn::tensor::DType;
use serde::Serialize;
use serde_json::{Map, Value};

use super::dimensions::Written;
use super::{Common, ConfigFile, Dimensions};
use crate::common::{DeviceId, locked};
use crate::keys::{Key, nearest};
use crate::model::Parts;
use crate::model::architecture::Architecture;
use crate::model::families::Family;
use crate::model::language::{Computation, Decoder, DecoderSizes};
use crate::ops::cost::{Cost, Operators, Setting, Trained};
use crate::ops::dense::WeightLayout;
use crate::ops::embedding;
use crate::params::WeightsFrom;
use crate::params::source::Source;
use crate::params::table::{Entry, Group, Table, Tuning};
use crate::params::tuning::LinearLayer;
use crate::params::weights::Weights;
use crate::residence::{Placement, Sharding};

/// `[model]` of a language model, resolved. It serialises as all of its dimensions,
/// and deserialises from those as well as from what a user types.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LanguageModel {
    #[serde(skip)]
    pub family: &'static Family,
    pub preset: Option<String>,
    pub weights: WeightsFrom,
    #[serde(flatten)]
    pub config: Dimensions,
    #[serde(flatten)]
    pub common: Common,
    #[serde(skip)]
    derived: Derived,
}

/// What follows from the dimensions. Rules and estimates ask for it many times a cell.
#[derive(Clone, Debug, PartialEq)]
struct Derived {
    architecture: Arc<Architecture>,
    parameters: u64,
}

impl Derived {
    /// The cells of a grid mostly share one configuration, and a table names every parameter: each is derived once.
    ///
    /// # Errors
    /// What no operator computes.
    fn new(family: &Family, config: &Dimensions) -> Result<Self, String> {
        static KNOWN: LazyLock<Mutex<HashMap<String, Derived>>> = LazyLock::new(Mutex::default);
        let name = format!("{} {}", family.kind, serde_json::to_string(config).expect("plain data"));
        if let Some(known) = locked(&KNOWN).get(&name) {
            return Ok(known.clone());
        }
        let architecture = (family.architecture)(config)?;
        let derived = Self { parameters: count(&architecture), architecture: Arc::new(architecture) };
        locked(&KNOWN).insert(name, derived.clone());
        Ok(derived)
    }
}

/// The number of parameters, from one layer of each run; at most `u64::MAX`.
fn count(architecture: &Architecture) -> u64 {
    let table = |layers| Decoder::table(&architecture.with_layers(layers), DType::F32, &Tuning::default());
    let is_of_block = |entry: &Entry| matches!(entry.group, Group::Block(_));
    let others = table(Vec::new()).elements(|entry| !is_of_block(entry));
    let blocks = architecture
        .runs()
        .map(|(layer, count)| table(vec![layer.clone()]).elements(is_of_block).saturating_mul(count as u128));
    u64::try_from(blocks.fold(others, u128::saturating_add)).unwrap_or(u64::MAX)
}

impl LanguageModel {
    /// A model of the family from the keys that are written.
    ///
    /// # Errors
    /// When dimensions are missing or do not go together, or are not those of the folder of weights.
    pub fn resolve(family: &'static Family, keys: &Written) -> Result<Self, String> {
        let mut keys = present(keys);
        let mut text = |key: &str| match keys.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (preset, weights) = (text("preset"), text("weights").map(WeightsFrom::from).unwrap_or_default());
        let mut written = match &preset {
            Some(name) => preset_of(family, name)?,
            None => Map::new(),
        };
        written.extend(keys);
        let beside = written.clone();
        let mut common = Common::take(family, &mut written)?;
        let config = match &weights {
            WeightsFrom::Random => complete(family, written, |missing| {
                let keys = missing.join(", ");
                format!("model dimensions are missing: {keys}; write them or name a `preset`")
            })?,
            // Recipes are checked, and rows read, also on machines without the weights: there the written sizes count.
            WeightsFrom::Folder(folder)
                if !folder.exists() && complete(family, written.clone(), |_| String::new()).is_ok() =>
            {
                complete(family, written, |_| String::new())?
            }
            WeightsFrom::Folder(folder) => {
                let file = ConfigFile::read(folder)?;
                let config = file.model(family, folder)?;
                common = file.common(family, folder, config.vocab_size())?;
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
        let derived = Derived::new(family, &config)?;
        Ok(Self { family, preset, weights, config, common, derived })
    }

    pub fn architecture(&self) -> &Arc<Architecture> {
        &self.derived.architecture
    }

    /// Its sizes, with the number of its parameters: at most `u64::MAX`.
    pub fn shape(&self) -> DecoderSizes {
        DecoderSizes { parameters: self.derived.parameters, ..self.architecture().sizes() }
    }

    /// Its operators, with the adapters of `tuning`.
    pub fn operators(&self, setting: &Setting, tuning: &Tuning) -> Operators {
        let mut operators = self.architecture().operators(setting, tuning);
        if self.common.pad_token_id.is_some() {
            embedding::add_padding(&mut operators.first[0], setting, self.shape().hidden_size as u64);
        }
        if setting.trained == Trained::NONE && tuning.adapter.is_none() && tuning.virtual_tokens.is_none() {
            let head = operators.last.pop();
            operators = operators.map(Cost::without_backward);
            operators.last.extend(head);
        }
        operators
    }

    /// The linear layers of a block.
    pub fn linear_layers(&self) -> Vec<LinearLayer> {
        let architecture = self.architecture();
        let first = architecture.with_layers(vec![architecture.layers[0].clone()]);
        let table = Decoder::table(&first, DType::F32, &Tuning::default());
        let layer = |entry: &Entry| {
            let path = entry.name.strip_suffix(".weight").filter(|_| entry.group == Group::Block(0))?;
            let sizes = <[usize; 2]>::try_from(entry.shape.as_slice()).ok()?;
            let name = path.rsplit('.').next().unwrap_or(path).to_string();
            // [inputs, outputs], or the other way round.
            Some((
                name,
                if architecture.layout == WeightLayout::InOut { sizes } else { [sizes[1], sizes[0]] },
            ))
        };
        table.entries.iter().filter_map(layer).collect()
    }

    /// Its parameters, stored in this type.
    pub fn table(&self, dtype: DType, tuning: &Tuning) -> Table {
        Decoder::table(self.architecture(), dtype, tuning)
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
    ) -> Decoder {
        let decoder = Decoder::new(self.architecture(), positions, source, computation, homes, parts);
        decoder.padded_with(self.common.pad_token_id)
    }
}

/// All dimensions, from those that are written; `message`: what to say of required ones that are not.
pub(super) fn complete(
    family: &'static Family,
    mut written: Map<String, Value>,
    message: impl Fn(Vec<&'static str>) -> String,
) -> Result<Dimensions, String> {
    let keys = family.section.keys;
    let is_missing = |key: &&Key| key.default.is_required() && !written.contains_key(key.name);
    let missing: Vec<&str> = keys.iter().filter(is_missing).map(|key| key.name).collect();
    if !missing.is_empty() {
        return Err(message(missing));
    }
    for Key { name, default, .. } in keys {
        if let Some(default) = default.value() {
            written.entry(*name).or_insert(default);
        }
    }
    let mut dimensions: Dimensions =
        serde_json::from_value(Value::Object(written)).map_err(|e| e.to_string())?;
    if let Some(other) = dimensions.activation.as_deref().filter(|name| !family.activations.contains(name)) {
        let (kind, known) = (family.kind, family.activations.join(", "));
        return Err(format!("activation = \"{other}\" is none of kind = \"{kind}\"; it can be {known}"));
    }
    (family.complete)(&mut dimensions)?;
    Ok(dimensions)
}

/// The keys that have a value.
pub(super) fn present(keys: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(keys) {
        Ok(Value::Object(map)) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

fn preset_of(family: &'static Family, name: &str) -> Result<Map<String, Value>, String> {
    if let Some((_, text)) = family.presets.iter().find(|(preset, _)| *preset == name) {
        return ConfigFile::parse(text).expect("a preset is a JSON object").written(family);
    }
    let known: Vec<&str> = family.presets.iter().map(|(preset, _)| *preset).collect();
    let list = known.join(", ");
    let hint = nearest(name, &known).map_or(String::new(), |best| format!("did you mean \"{best}\"? "));
    let kind = family.kind;
    Err(format!("unknown preset \"{name}\" of kind {kind}; {hint}its presets are: {list}"))
}
