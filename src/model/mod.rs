//! Networks: what `[model] kind` may name, and what a network gives the runner.

pub mod config;
pub mod generate;
pub mod language;
pub mod named;
pub mod source;
pub mod swiglu;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::measure::Estimate;
use crate::recipe::{Cell, Rule};
use swiglu::SwigluConfig;

/// `[model]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    Swiglu(SwigluConfig),
}

/// A network that can be trained on batches of its own kind.
pub trait Network: Module + Sized {
    type Batch: Clone;

    /// Random weights from `cell.seed`, on an autodiff device.
    fn init(cell: &Cell, device: &Device) -> Self;

    /// The batch every step trains on, drawn from `cell.seed`.
    fn batch(cell: &Cell, device: &Device) -> Self::Batch;

    /// The mean loss over the batch, in fp32.
    fn loss(&self, batch: Self::Batch) -> Tensor<1>;
}

/// Floating-point operations of one step, a multiply-add counted as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    pub forward: f64,
    /// Recomputation not counted.
    pub backward: f64,
    /// What backward repeats of forward.
    pub recompute: f64,
}

impl Model {
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Swiglu(config) => config.parameters(),
        }
    }

    pub fn flops(&self, cell: &Cell) -> Flops {
        match self {
            Self::Swiglu(config) => config.flops(cell),
        }
    }

    /// Bytes the cell needs at its highest moment, from its settings alone.
    pub fn estimate(&self, cell: &Cell) -> Estimate {
        match self {
            Self::Swiglu(config) => config.estimate(cell),
        }
    }

    pub(crate) fn check(&self, cell: &Cell) -> Result<(), Rule> {
        match self {
            Self::Swiglu(config) => config.check(cell),
        }
    }
}
