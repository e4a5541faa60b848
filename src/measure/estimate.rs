//! [`Estimate`]: the bytes a cell will need, from its settings alone.

use serde::{Deserialize, Serialize};

/// Bytes at the cell's highest moment, by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub weights: u64,
    pub gradients: u64,
    pub optimizer: u64,
    /// Kept from forward to backward.
    pub activations: u64,
    /// Input, target and temporaries of one operator.
    pub workspace: u64,
}

impl Estimate {
    pub fn total(&self) -> u64 {
        [self.weights, self.gradients, self.optimizer, self.activations, self.workspace]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
