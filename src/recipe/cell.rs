//! [`Cell`]: one fully resolved experiment, and its dotted settings.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::HEADER_KEYS;
use super::diagnostic::{RecipeError, Source};
use super::grid::Override;
use super::sections::{DeviceName, Eval, Measure, Train};
use super::tagged;
use crate::data::{Data, sampler};
use crate::device::{DeviceId, Target};
use crate::measure::Estimate;
use crate::model::{Model, Operators, Workload};
use crate::ops::cost::{Flops, Setting};
use crate::ops::{Checkpoint, Ops};
use crate::precision::Precision;
use crate::residence::Offload;
use crate::words::{Rule, Settings, flatten};

/// Everything that decides what is computed and how it is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    #[serde(default)]
    pub device: DeviceName,
    /// Seed of the weights and the data.
    #[serde(default = "default_seed")]
    pub seed: u32,
    pub model: Model,
    #[serde(default)]
    pub precision: Precision,
    #[serde(default)]
    pub checkpoint: Checkpoint,
    #[serde(default)]
    pub ops: Ops,
    /// As typed: a recipe that compares strategies says `none` too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offload>,
    #[serde(default, skip_serializing_if = "Data::is_random")]
    pub data: Data,
    pub train: Train,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<Eval>,
    #[serde(default)]
    pub measure: Measure,
}

fn default_seed() -> u32 {
    42
}

impl Cell {
    /// The cell in the recipe's spelling, as nested JSON.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("a cell is plain data");
        tagged::flatten_tags(&mut value);
        value
    }

    /// The inverse of [`Cell::to_json`].
    ///
    /// # Errors
    /// When `value` was not written by this version.
    pub fn from_json(mut value: Value) -> Result<Self, serde_json::Error> {
        tagged::restore_tags(&mut value);
        serde_json::from_value(value)
    }

    pub fn settings(&self) -> Settings {
        flatten(&self.to_json())
    }

    /// The device this cell runs on, or ran on: of a finished recipe it need not be here.
    pub fn device_id(&self) -> DeviceId {
        DeviceId::named(&self.device.0)
    }

    /// Where the blocks of a language model live.
    pub fn offload(&self) -> Offload {
        self.offload.unwrap_or_default()
    }

    /// What a step of it works on, and how.
    pub fn workload(&self) -> Workload<'_> {
        Workload {
            device: self.device_id(),
            precision: &self.precision,
            checkpoint: self.checkpoint,
            ops: self.ops,
            offload: self.offload(),
            optimizer: &self.train.optimizer,
            batch_size: self.train.batch_size,
            seq_len: self.train.seq_len,
            packed: self.data.is_packed(),
            accumulation_steps: self.train.accumulation_steps,
            eval_batches: self.eval.map_or(0, |eval| eval.batches),
        }
    }

    pub fn operators(&self) -> Operators {
        self.model.operators(&self.workload().setting())
    }

    /// Bytes the cell needs at its highest moment, from its settings alone.
    pub fn estimate(&self) -> Estimate {
        self.operators().estimate(&self.workload())
    }

    /// Of a whole step without padding.
    pub fn flops(&self) -> Flops {
        self.operators().flops(&self.workload()) * self.train.accumulation_steps as f64
    }

    /// Of sequences with so many tokens together, whose squared lengths add up to `squares`.
    pub fn flops_of(&self, tokens: u64, squares: f64) -> Flops {
        let workload = self.workload();
        let setting = Setting { batch: 1, sequence: tokens, squares, ..workload.setting() };
        self.model.operators(&setting).flops(&workload)
    }

    /// Rules over more than one key. Each technique checks its own.
    fn check(&self) -> Result<(), Rule> {
        self.precision.check(self)?;
        self.ops.check(self)?;
        self.offload().check(self)?;
        if self.model.decoder().is_none() {
            self.check_without_text()?;
        }
        if self.measure.length.steps().is_none() && !self.data.sampler().sampler.keeps_samples() {
            return Err(Rule::new(
                &["measure.epochs"],
                "an epoch is one pass over the samples of data.sampler, and this cell has none",
                "set measure.steps in its place, or data.sampler to \"padded\", \"standard\", \"balanced\" or \
                 \"packed\"",
            ));
        }
        self.train.check()?;
        self.data.check(self)?;
        self.model.check(self)
    }

    /// What only language models have.
    fn check_without_text(&self) -> Result<(), Rule> {
        let refused = [
            ("data", !self.data.is_random()),
            ("eval", self.eval.is_some()),
            ("precision.autocast", self.precision.autocast),
        ];
        match refused.into_iter().find(|(_, written)| *written) {
            None => Ok(()),
            Some((key, _)) => Err(Rule::new(
                &[key],
                format!("`{key}` is for language models; the swiglu network has a fixed random problem"),
                format!("remove `{key}`, or use model.kind = \"gpt2\", \"qwen2\" or \"llama\""),
            )),
        }
    }
}

/// A setting as it counts: one that a cell leaves out has its default.
pub fn setting<'s>(settings: &'s Settings, key: &str) -> Option<Cow<'s, Value>> {
    let left_out: fn() -> Value = match key {
        "train.accumulation_steps" => || 1.into(),
        "train.schedule.kind" => || "constant".into(),
        "data.corpus" => || "random".into(),
        "data.sampler" => || "blocks".into(),
        "precision.autocast" | "ops.fusion" => || false.into(),
        "offload.strategy" => || "none".into(),
        "offload.activations" | "offload.optimizer" => || "device".into(),
        "precision.scaler.kind" => || "none".into(),
        "train.sync_each_step" => || false.into(),
        key => {
            let default = || sampler::default_of(key).filter(|_| settings.contains_key("data.sampler"));
            return settings.get(key).map(Cow::Borrowed).or_else(|| default().map(Cow::Owned));
        }
    };
    Some(settings.get(key).map_or_else(|| Cow::Owned(left_out()), Cow::Borrowed))
}

/// Whether every cell has a `leader`, and equal ones have equal values of `key`.
pub fn goes_with(key: &str, leader: &str, settings: &[Settings]) -> bool {
    let mut by_leader: BTreeMap<String, Option<&Value>> = BTreeMap::new();
    settings.iter().all(|s| match setting(s, leader) {
        None => false,
        Some(value) => *by_leader.entry(value.to_string()).or_insert(s.get(key)) == s.get(key),
    })
}

/// Whether a key is a size of the problem (compared at equal values) rather than a choice of
/// method (compared with one another). Text is of the problem: losses on other text, or in other tokens,
/// do not compare; how it is sampled and loaded is a method.
pub fn is_size(key: &str) -> bool {
    let methods = ["model.kind", "model.weights", "model.positions", "model.tie_word_embeddings"];
    let sizes = [
        "train.batch_size",
        "train.seq_len",
        "train.accumulation_steps",
        "data.corpus",
        "data.size",
        "data.tokenizer",
        "data.vocab_size",
        "data.train_split",
        "data.eval_split",
        "data.samples",
        "seed",
    ];
    (key.starts_with("model.") && !methods.contains(&key)) || sizes.contains(&key)
}

/// Builds and checks one cell: the recipe's own keys, overridden by one combination of the grid.
/// Places in the file survive the merge, so an error points at the grid when the grid is at fault. Without a
/// `target` it stays open where the cell runs.
pub(super) fn from_table<'i>(
    mut root: Spanned<DeTable<'i>>,
    overrides: &[(Spanned<String>, Override<'i>)],
    source: &Source,
    target: Option<&Target>,
) -> Result<Cell, RecipeError> {
    for (key, value) in overrides {
        set(root.get_mut(), key, key.get_ref(), value, source)?;
    }
    let places = root.clone();
    tagged::tag(&mut root, source)?;
    let mut also = HEADER_KEYS.to_vec();
    also.push("grid");
    let mut cell = Cell::deserialize(Deserializer::from(root)).map_err(|e| {
        // Only the top level also knows title, question, grid and report.
        let top = e.message().contains("`train`") && e.message().contains("`measure`");
        source.toml_error(&e, if top { &also } else { &[] })
    })?;
    let place = |key: &str| find(places.get_ref(), key);
    let rule_error = |rule: Rule| {
        let span = rule.keys.iter().find_map(|key| place(key));
        source.at(span, rule.message, rule.help)
    };
    if let Some(folder) = cell.model.weights_folder()
        && place("data.tokenizer").is_none()
    {
        cell.data.take_tokenizer_of(folder, place("data.vocab_size").is_some()).map_err(rule_error)?;
    }
    if let Some(target) = target {
        let device = target.resolve(&cell.device.0).map_err(rule_error)?;
        cell.device = DeviceName(device.to_string());
        target.check(device, &cell).map_err(rule_error)?;
    }
    cell.check().map_err(rule_error)?;
    if target.is_some() {
        cell.data.check_files(&cell).map_err(rule_error)?;
    }
    Ok(cell)
}

/// Sets a dotted path, making tables on the way.
pub(super) fn set<'i>(
    table: &mut DeTable<'i>,
    key: &Spanned<String>,
    path: &str,
    value: &Override<'i>,
    source: &Source,
) -> Result<(), RecipeError> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
    let name = Spanned::new(key.span(), head.to_string().into());
    let Some(rest) = rest else {
        table.remove(head);
        table.insert(name, value.clone());
        return Ok(());
    };
    if !table.contains_key(head) {
        table.insert(name, Spanned::new(key.span(), DeValue::Table(DeTable::new())));
    }
    match table.get_mut(head).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => set(inner, key, rest, value, source),
        _ => Err(source.at(
            Some(key.span()),
            format!("`{}` goes through `{head}`, which is not a table", key.get_ref()),
            "write the key as section.key".into(),
        )),
    }
}

/// Where a dotted key's value is written, if it is.
fn find(table: &DeTable<'_>, path: &str) -> Option<std::ops::Range<usize>> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
    let value = table.get(head)?;
    match (rest, value.get_ref()) {
        (None, _) => Some(value.span()),
        (Some(rest), DeValue::Table(inner)) => find(inner, rest),
        _ => None,
    }
}
