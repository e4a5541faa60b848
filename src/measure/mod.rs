//! Measurement: what a cell's steps cost in time and memory, and what was estimated.

pub mod alloc;
mod cpu;
mod estimate;
mod evaluation;
mod meter;
mod samples;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use cpu::{CpuMeter, process_peak_rss};
pub use estimate::{Estimate, Ledger};
pub use evaluation::Evaluation;
pub use meter::{Measured, MemoryUse, Meter, Phase, Stop, divergence};
pub use samples::Samples;

use crate::precision::{GradientHistogram, ScalerRecord};

/// What the measured steps of a cell cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Seconds of each phase, one sample a measured step.
    pub forward: Samples,
    pub backward: Samples,
    /// Absent when the recipe has no optimizer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub optimizer: Option<Samples>,
    /// The three together.
    pub step: Samples,
    /// Tokens of one step over the median step.
    pub tokens_per_second: f64,
    /// Loss of every step, warm-up included.
    pub loss: Vec<f64>,
    /// Quality on data that is not trained on, as often as the recipe asks.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evaluations: Vec<Evaluation>,
    /// Absent without a gradient scaler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scaler: Option<ScalerRecord>,
    /// Of one more gradient after the last step, where the recipe asks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gradient_histogram: Option<GradientHistogram>,
    pub memory: MemoryUse,
    /// Which way each part of the work took: `"matmul" → "cuBLASLt"`.
    pub paths: BTreeMap<String, String>,
    /// Model operations (recomputation not counted) of forward and backward per second.
    pub flops_per_second: f64,
    /// Seconds before the first step in which the device compiled kernels and tuned matrix products;
    /// absent where there is nothing to prepare.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prepare_seconds: Option<f64>,
}
