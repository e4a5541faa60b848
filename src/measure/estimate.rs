//! [`Estimate`]: the bytes that a cell will need, from its settings alone.

use serde::{Deserialize, Serialize};

use crate::common::DeviceId;
use crate::keys::Rule;

/// More elements than any machine can address. Below it the arithmetic of estimates stays within 64 bits:
/// none holds an element in as many as 2^8 bytes.
const MOST_ELEMENTS: u128 = 1 << 54;

/// Elements of tensors of these sizes, at most `u128::MAX`.
pub fn elements(tensors: &[&[usize]]) -> u128 {
    let of_one = |sizes: &&[usize]| sizes.iter().fold(1u128, |product, n| product.saturating_mul(*n as u128));
    tensors.iter().map(of_one).fold(0, u128::saturating_add)
}

/// Refuses a cell whose tensors are too large for arithmetic with them. `sizes`: the keys that they follow from.
pub(crate) fn check_elements(elements: u128, sizes: &[(&'static str, usize)]) -> Result<(), Rule> {
    if elements <= MOST_ELEMENTS {
        return Ok(());
    }
    let mut sizes = sizes.to_vec();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let keys: Vec<&str> = sizes.iter().map(|(key, _)| *key).collect();
    let (key, size) = sizes[0];
    Err(Rule::new(
        &keys,
        "the cell needs more memory than any machine can address",
        format!("make its sizes smaller; the largest is {key} = {size}"),
    ))
}

/// Bytes at the cell's highest moment, by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub weights: u64,
    pub gradients: u64,
    pub optimizer: u64,
    /// Kept from forward to backward, as far as it is still there at that moment.
    pub activations: u64,
    /// The batch and the temporaries of the operator that runs.
    pub workspace: u64,
    /// Bytes that are on the host instead of the device; not a part of the sum.
    #[serde(default)]
    pub host: u64,
    /// The most that is kept from forward to backward at any moment; not a part of the sum.
    pub kept: u64,
}

impl Estimate {
    /// What makes up the sum.
    pub fn classes(&self) -> [(&'static str, u64); 5] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer),
            ("activations", self.activations),
            ("workspace", self.workspace),
        ]
    }

    /// Bytes of the host's memory: on the CPU the sum is among them.
    pub fn on_host(&self, device: DeviceId) -> u64 {
        let tensors = if device == DeviceId::Cpu { self.total() } else { 0 };
        self.host.saturating_add(tensors)
    }

    pub fn total(&self) -> u64 {
        self.classes().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}
