//! [`KeptBy`]: who keeps what from forward to backward.

use std::ops::{Add, Mul, Sub};

use strum::{EnumCount, VariantArray};

use crate::ops::name::OperatorName;

/// Bytes kept from forward to backward by the operator that needs them: what it makes for its backward, and its input
/// where it holds that. `None`: inputs of what backward computes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBy([u64; OperatorName::COUNT + 1]);

impl KeptBy {
    pub fn of(keeper: Option<OperatorName>, bytes: u64) -> Self {
        let mut kept = Self::default();
        kept.0[keeper.map_or(OperatorName::COUNT, |name| name as usize)] = bytes;
        kept
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The operators that keep something, with their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (Option<OperatorName>, u64)> {
        let names = OperatorName::VARIANTS.iter().copied().map(Some).chain([None]);
        names.zip(self.0).filter(|(_, bytes)| *bytes > 0)
    }

    /// Takes away what is kept above `bytes` in all.
    pub fn at_most(mut self, bytes: u64) -> Self {
        let mut over = self.total().saturating_sub(bytes);
        for kept in &mut self.0 {
            let less = over.min(*kept);
            *kept -= less;
            over -= less;
        }
        self
    }
}

impl Add for KeptBy {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
}

impl Sub for KeptBy {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] - other.0[i]))
    }
}

impl Mul<u64> for KeptBy {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.map(|bytes| bytes * times))
    }
}
