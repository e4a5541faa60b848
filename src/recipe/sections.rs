//! The sections of a recipe that no technique owns: training sizes, evaluation, measurement.

use serde::{Deserialize, Deserializer, Serialize};

use super::values::{self, Bytes};
use crate::optim::{OptimizerConfig, Schedule};

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
    /// Tokens of one micro-batch.
    pub fn tokens(&self) -> usize {
        self.batch_size * self.seq_len
    }
}

/// `[measure]`: how a cell is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Steps run first and left out of the times.
    #[serde(deserialize_with = "values::count_or_zero")]
    pub warmup: usize,
    /// Measured steps.
    #[serde(deserialize_with = "values::count")]
    pub steps: usize,
    /// The cell must live within this much device memory, as on a smaller card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Bytes>,
    /// Counts the gradients of one step after the last by their size.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gradient_histogram: bool,
    /// Seconds after which a cell is ended and becomes a `failed` row.
    #[serde(deserialize_with = "values::positive")]
    pub timeout: f64,
}

impl Default for Measure {
    fn default() -> Self {
        Self { warmup: 2, steps: 15, memory_limit: None, gradient_histogram: false, timeout: 3600.0 }
    }
}
