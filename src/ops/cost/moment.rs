//! [`Moment`], [`Sent`] and [`Flops`]: bytes and operations, to be added up.

use serde::{Deserialize, Serialize};

use super::by_field::by_field;
use super::kept_by::KeptBy;
use crate::ops::name::OperatorName;

/// Bytes at a moment, by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Kept from forward to backward.
    pub kept: u64,
    /// What each named operator keeps of it.
    pub by: KeptBy,
    pub gradients: u64,
    pub workspace: u64,
}

impl Moment {
    pub fn kept(bytes: u64) -> Self {
        Self { kept: bytes, ..Self::default() }
    }

    /// The same, kept by an operator.
    pub fn kept_by(keeper: Option<OperatorName>, bytes: u64) -> Self {
        Self { kept: bytes, by: KeptBy::of(keeper, bytes), ..Self::default() }
    }

    /// What is kept as that of this operator.
    #[must_use]
    pub(super) fn named(self, name: OperatorName) -> Self {
        Self { by: KeptBy::of(Some(name), self.kept), ..self }
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
        Self { workspace: self.workspace.saturating_sub(bytes), kept, by: self.by.at_most(kept), ..self }
    }

    /// This moment, and a part of what another one has more.
    #[must_use]
    pub fn towards(self, more: Self, [part, of]: [u64; 2]) -> Self {
        let between = |less: u64, more: u64| less.min(more) + more.saturating_sub(less) * part / of;
        let kept = between(self.kept, more.kept);
        Self {
            kept,
            by: more.by.at_most(kept),
            gradients: between(self.gradients, more.gradients),
            workspace: between(self.workspace, more.workspace),
        }
    }

    /// The moment with the most bytes.
    pub fn highest(moments: impl IntoIterator<Item = Self>) -> Self {
        moments.into_iter().max_by_key(|moment| moment.total()).unwrap_or_default()
    }
}

by_field!(Add for Moment { kept, by, gradients, workspace });

/// Bytes that a rank sends to those that layers are divided among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub forward: u64,
    /// Includes what backward repeats of forward.
    pub backward: u64,
}

impl Sent {
    pub fn total(self) -> u64 {
        self.forward + self.backward
    }
}

by_field!(Add for Sent { forward, backward });

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
    /// FLOPs of products that are differentiated by both operands: backward has two products for each of forward.
    pub fn of_products(forward: f64) -> Self {
        Self { forward, backward: 2.0 * forward, recompute: 0.0 }
    }

    /// FLOPs of products with frozen matrices, which are differentiated by the other operand alone.
    pub fn of_frozen(forward: f64) -> Self {
        Self { forward, backward: forward, recompute: 0.0 }
    }
}

by_field!(Add for Flops { forward, backward, recompute });
by_field!(Mul<f64> for Flops { forward, backward, recompute });
