//! Copies of other blocks run behind the computation of one.

use super::Movement;

pub struct Overlap;

impl Movement for Overlap {
    /// All slots but the one that is computed from, where there are any.
    fn ahead(&self, slots: usize) -> Option<usize> {
        Some(slots.saturating_sub(1))
    }
}
