//! [`Moment`] and [`Flops`]: bytes and operations, to be added up.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

/// Bytes at a moment, by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Kept from forward to backward.
    pub kept: u64,
    pub gradients: u64,
    pub workspace: u64,
}

impl Moment {
    pub fn kept(bytes: u64) -> Self {
        Self { kept: bytes, ..Self::default() }
    }

    pub fn gradients(bytes: u64) -> Self {
        Self { gradients: bytes, ..Self::default() }
    }

    pub fn workspace(bytes: u64) -> Self {
        Self { workspace: bytes, ..Self::default() }
    }

    pub fn total(self) -> u64 {
        self.kept + self.gradients + self.workspace
    }

    /// Without bytes that were counted and are free.
    pub fn less(self, bytes: u64) -> Self {
        let kept = self.kept.saturating_sub(bytes.saturating_sub(self.workspace));
        Self { workspace: self.workspace.saturating_sub(bytes), kept, ..self }
    }

    /// The moment with the most bytes.
    pub fn highest(moments: impl IntoIterator<Item = Self>) -> Self {
        moments.into_iter().max_by_key(|moment| moment.total()).unwrap_or_default()
    }
}

impl Add for Moment {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            kept: self.kept + other.kept,
            gradients: self.gradients + other.gradients,
            workspace: self.workspace + other.workspace,
        }
    }
}

/// Floating-point operations, a multiply-add counted as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    pub forward: f64,
    /// Recomputation not counted.
    pub backward: f64,
    /// What backward repeats of forward.
    pub recompute: f64,
}

impl Flops {
    /// Of products that are differentiated by both operands: backward has two products for each of forward.
    pub fn of_products(forward: f64) -> Self {
        Self { forward, backward: 2.0 * forward, recompute: 0.0 }
    }

    /// Of products by frozen matrices, which are differentiated by the other operand alone.
    pub fn of_frozen(forward: f64) -> Self {
        Self { forward, backward: forward, recompute: 0.0 }
    }
}

impl Add for Flops {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            backward: self.backward + other.backward,
            recompute: self.recompute + other.recompute,
        }
    }
}

impl Mul<f64> for Flops {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        let Self { forward, backward, recompute } = self;
        Self { forward: forward * times, backward: backward * times, recompute: recompute * times }
    }
}
