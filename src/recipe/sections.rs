//! The sections of a recipe that no technique owns: precision, training sizes, measurement.

use serde::{Deserialize, Deserializer, Serialize};

use super::diagnostic::Rule;
use super::values::{self, Bytes};
use crate::ops::linear::Fp32Math;
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

/// `[precision]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Precision {
    pub compute: Compute,
    /// Weights, residual sums and optimizer state in fp32; matrix products in `compute`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub autocast: bool,
}

impl Precision {
    /// Bytes of one element of a parameter.
    pub fn stored_bytes(&self) -> u64 {
        if self.autocast { 4 } else { self.compute.bytes() }
    }

    pub(crate) fn check(&self) -> Result<(), Rule> {
        if self.autocast && matches!(self.compute, Compute::Fp32 | Compute::Tf32) {
            return Err(Rule::new(
                &["precision.autocast"],
                format!(
                    "autocast has no effect with compute = \"{}\": everything is fp32 already",
                    self.compute.name()
                ),
                "remove precision.autocast, or set compute to \"bf16\" or \"fp16\"",
            ));
        }
        Ok(())
    }
}

/// The type that weights, activations and gradients are stored in and multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Compute {
    /// IEEE binary32 throughout; never TF32.
    #[default]
    Fp32,
    /// Stored as fp32, multiplied in TF32 on the tensor cores; CUDA only.
    Tf32,
    Bf16,
    Fp16,
}

impl Compute {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// How fp32 tensors are multiplied.
    pub fn fp32_math(self) -> Fp32Math {
        if self == Self::Tf32 { Fp32Math::Tf32 } else { Fp32Math::Exact }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
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
    /// Seconds after which a cell is ended and becomes a `failed` row.
    #[serde(deserialize_with = "values::positive")]
    pub timeout: f64,
}

impl Default for Measure {
    fn default() -> Self {
        Self { warmup: 2, steps: 15, memory_limit: None, timeout: 3600.0 }
    }
}
