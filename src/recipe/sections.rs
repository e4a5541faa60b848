//! The sections of a recipe that no technique owns: training sizes, evaluation, measurement.

use serde::{Deserialize, Deserializer, Serialize};

use crate::optim::{OptimizerConfig, Schedule};
use crate::words::{Bytes, Rule, values};

/// `device = "auto" | "cpu" | "cuda:N"`. Resolved to a real device before a cell is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceName(pub String);

impl Default for DeviceName {
    fn default() -> Self {
        Self("auto".into())
    }
}

/// `[train]`: what one step works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Sequences of one micro-batch.
    #[serde(deserialize_with = "values::count")]
    pub batch_size: usize,
    /// Tokens per sequence.
    #[serde(deserialize_with = "values::count")]
    pub seq_len: usize,
    /// Micro-batches whose gradients are summed before an update.
    #[serde(default = "one", deserialize_with = "values::count", skip_serializing_if = "is_one")]
    pub accumulation_steps: usize,
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// The norm over all gradients is scaled down to this at most.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub schedule: Schedule,
    /// Whether the host reads each step's loss before it goes on, as `loss.item()` does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sync_each_step: bool,
}

fn one() -> usize {
    1
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

fn limit<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    values::positive(d).map(Some)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `[eval]`: quality on held-out data during the run; outside of the measured times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    /// Steps between evaluations; there is one before the first step and one after the last too.
    #[serde(deserialize_with = "values::count")]
    pub every: usize,
    /// Batches of `train.batch_size` sequences an evaluation reads.
    #[serde(default = "batches", deserialize_with = "values::count")]
    pub batches: usize,
}

fn batches() -> usize {
    8
}

impl Train {
    /// Refuses what changes updates where there are none.
    pub(super) fn check(&self) -> Result<(), Rule> {
        let of_updates =
            [("train.clip_norm", self.clip_norm.is_some()), ("train.schedule", !is_default(&self.schedule))];
        let has_updates = !matches!(self.optimizer, OptimizerConfig::None(_));
        match of_updates.into_iter().find(|(_, written)| *written && !has_updates) {
            None => Ok(()),
            Some((key, _)) => Err(Rule::new(
                &[key],
                format!("{key} has no effect without an optimizer: there is no update that it could change"),
                format!("remove {key}, or write train.optimizer = {{ kind = \"adamw\", lr = 1e-3 }}"),
            )),
        }
    }

    /// Tokens of one micro-batch.
    pub fn tokens(&self) -> usize {
        self.batch_size * self.seq_len
    }
}

/// `[measure]`: how a cell is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawMeasure")]
pub struct Measure {
    /// Steps run first and left out of the times.
    pub warmup: usize,
    #[serde(flatten)]
    pub length: Length,
    /// The cell must live within this much device memory, as on a smaller card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Bytes>,
    /// Counts the gradients of one step after the last by their size.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gradient_histogram: bool,
    /// Seconds after which a cell is ended and becomes a `failed` row.
    pub timeout: f64,
}

/// How far the measured training goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// Measured steps.
    Steps(usize),
    /// Passes over the samples of `data.sampler`: strategies that need different numbers of steps for
    /// the same samples.
    Epochs(usize),
}

impl Length {
    /// Steps, where the settings alone tell them.
    pub fn steps(self) -> Option<usize> {
        match self {
            Self::Steps(steps) => Some(steps),
            Self::Epochs(_) => None,
        }
    }
}

/// `[measure]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawMeasure {
    #[serde(deserialize_with = "values::count_or_zero")]
    warmup: usize,
    #[serde(deserialize_with = "count")]
    steps: Option<usize>,
    #[serde(deserialize_with = "count")]
    epochs: Option<usize>,
    memory_limit: Option<Bytes>,
    gradient_histogram: bool,
    #[serde(deserialize_with = "values::positive")]
    timeout: f64,
}

fn count<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    values::count(d).map(Some)
}

impl Default for RawMeasure {
    fn default() -> Self {
        Self {
            warmup: 2,
            steps: None,
            epochs: None,
            memory_limit: None,
            gradient_histogram: false,
            timeout: 3600.0,
        }
    }
}

impl TryFrom<RawMeasure> for Measure {
    type Error = String;

    fn try_from(raw: RawMeasure) -> Result<Self, String> {
        let length = match (raw.steps, raw.epochs) {
            (Some(_), Some(_)) => {
                return Err("`steps` and `epochs` both say how long a cell trains; remove one of them".into());
            }
            (None, Some(epochs)) => Length::Epochs(epochs),
            (steps, None) => Length::Steps(steps.unwrap_or(15)),
        };
        let RawMeasure { warmup, memory_limit, gradient_histogram, timeout, .. } = raw;
        Ok(Self { warmup, length, memory_limit, gradient_histogram, timeout })
    }
}

impl Default for Measure {
    fn default() -> Self {
        Self::try_from(RawMeasure::default()).expect("neither steps nor epochs are written")
    }
}
