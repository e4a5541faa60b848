//! [`Estimate`]: the bytes a cell will need, from its settings alone, and the [`Ledger`] that
//! finds them by walking through a step.

use serde::{Deserialize, Serialize};

use crate::words::DeviceId;
use crate::words::{Compute, Rule};

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
    pub fn total(&self) -> u64 {
        [self.weights, self.gradients, self.optimizer, self.activations, self.workspace]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// Follows what a step holds, tensor by tensor, and remembers the highest moment. Each technique
/// writes its own walk, in the order its code allocates and frees.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub now: Estimate,
    peak: Estimate,
    kept: u64,
    compute: Compute,
    device: DeviceId,
}

impl Ledger {
    pub fn new(compute: Compute, device: DeviceId) -> Self {
        Self { now: Estimate::default(), peak: Estimate::default(), kept: 0, compute, device }
    }

    /// Notes the present moment.
    fn mark(&mut self) {
        self.kept = self.kept.max(self.now.activations);
        if self.now.total() > self.peak.total() {
            self.peak = self.now;
        }
    }

    /// Takes workspace; give it back by subtracting from `now.workspace`.
    pub fn take(&mut self, bytes: u64) {
        self.now.workspace = self.now.workspace.saturating_add(bytes);
        self.mark();
    }

    /// Gives workspace back.
    pub fn give(&mut self, bytes: u64) {
        self.now.workspace = self.now.workspace.saturating_sub(bytes);
    }

    /// A matrix product of operands of `lhs` and `rhs` bytes; its result of `out` bytes stays in
    /// the workspace.
    ///
    /// Burn's CPU backend zeroes a result in one buffer and moves it to an aligned one, so that
    /// the result exists twice for a moment; bf16 is multiplied in fp32 copies of all three.
    pub fn matmul(&mut self, lhs: u64, rhs: u64, out: u64) {
        let moment = match (self.device, self.compute) {
            (DeviceId::Cuda(_), _) => out,
            (DeviceId::Cpu, Compute::Fp32 | Compute::Tf32 | Compute::Fp16) => 2 * out,
            (DeviceId::Cpu, Compute::Bf16) => 2 * (lhs + rhs) + 4 * out,
        };
        self.take(moment);
        self.give(moment);
        self.take(out);
    }

    /// The highest moment.
    pub fn peak(&self) -> Estimate {
        Estimate { kept: self.kept, ..self.peak }
    }
}
