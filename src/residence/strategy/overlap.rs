//! While one block is computed, others are copied.

use super::Movement;
use crate::keys::key::DefaultValue::Whole;
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Section};

section! {
    /// While one block computes, the next ones are copied in and finished gradients are copied out, on separate streams.
    #[derive(Copy, Eq)]
    pub struct Overlap: Section::of("offload", "strategy", &["overlap"]), Default => {
        /// Slots on the device for the weights of blocks: with 3 one computes, one is there, one is on its way.
        pub buffers: usize = Key::method(Values::Whole { least: 1, most: 4 })
            .default(Whole(3)),
    }
}

impl Movement for Overlap {
    fn buffers(&self) -> usize {
        self.buffers
    }

    /// All slots but the one that is computed from.
    fn ahead(&self, slots: usize) -> Option<usize> {
        Some(slots.saturating_sub(1))
    }
}
