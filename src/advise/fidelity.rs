//! [`Fidelity`]: what a way of training does to the result.

use std::mem::discriminant;

use crate::optim::OptimizerConfig;
use crate::recipe::Cell;
use crate::residence::Memory;

/// What a way of training does to the result, beside that of the cell that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray)]
pub enum Fidelity {
    /// Master weights and moments have the same bits: where they live, what is computed again and how a step is divided change
    /// no result.
    Same,
    /// Weights, moments or products have other bits.
    Nearly,
    /// Other parameters are trained, or by another rule.
    Other,
}

impl Fidelity {
    /// Of `way` in the place of `own`.
    pub fn new(own: &Cell, way: &Cell) -> Self {
        let [own_rule, rule] = [own, way].map(|cell| &cell.train.optimizer);
        let [(own_master, own_moments), (master, moments)] = [own, way].map(master_and_moments);
        let same_rule = match (own_moments, moments) {
            (Some(_), Some(_)) => true,
            _ => discriminant(own_rule) == discriminant(rule),
        };
        if own.tuning != way.tuning || !same_rule {
            return Self::Other;
        }
        // fp16 with a scaler is what a device has in the place of bf16.
        let products = way.precision.compute.bytes() >= own.precision.compute.bytes();
        let split = rule.keeps_remainders() && !own_rule.keeps_remainders();
        match moments == own_moments && (master || !own_master) && products && !split {
            true => Self::Same,
            false => Self::Nearly,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "the same",
            Self::Nearly => "nearly the same",
            Self::Other => "another",
        }
    }
}

/// Bits of a weight's master copy and its moments that the cell does not have: of two ways with one [`Fidelity`] the one that
/// lacks fewer changes less.
pub fn lacking_bits(cell: &Cell) -> u32 {
    let (master, moments) = master_and_moments(cell);
    let moments = moments.map_or(0, |bits| 32 - bits);
    if master { moments } else { moments + 16 }
}

/// Whether weights have 32 bits somewhere, and the bits of AdamW's moments; `None` for another rule.
pub fn master_and_moments(cell: &Cell) -> (bool, Option<u32>) {
    let rule = &cell.train.optimizer;
    let moments = match rule {
        OptimizerConfig::AdamW(_) => Some(32),
        OptimizerConfig::AdamWBf16(_) => Some(16),
        OptimizerConfig::AdamW8bit(_) => Some(8),
        OptimizerConfig::None(_) | OptimizerConfig::Sgd(_) | OptimizerConfig::Adafactor(_) => None,
    };
    let stored = cell.precision.stored_bytes();
    (stored == 4 || rule.keeps_remainders() || cell.offload.optimizer == Memory::Host, moments)
}
