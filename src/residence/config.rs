//! [`Offload`]: the recipe's `[offload]` section.

use serde::{Deserialize, Serialize};

use super::strategy::Strategy;
use crate::device::DeviceId;
use crate::words::key::DefaultValue::Word;
use crate::words::section::section;
use crate::words::values::Values;
use crate::words::{Key, Rule, Section};

section! {
    /// Where the weights and gradients of transformer blocks live.
    #[derive(Copy, Default, Eq)]
    pub struct Offload: Section::new("offload") => {
        /// How blocks come to the device and leave it.
        pub strategy: Strategy =
            Key::method(Values::Kinds).default(Word("none")).reads(&[("none", "no offload")]),
        /// Where each block's input waits for backward.
        pub activations: Memory = MEMORY.reads(&[("", "activations on {}")]),
        /// Where AdamW runs, with its fp32 master weights and moments.
        pub optimizer: Memory = MEMORY.reads(&[("", "optimizer on {}")]),
    }
}

/// Where the blocks of a network live, and what their gradients are for.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub offload: Offload,
    pub device: DeviceId,
    /// Whether gradients of several micro-batches are added up.
    pub accumulates: bool,
}

/// Which memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    #[default]
    Device,
    Host,
}

const MEMORY: Key = Key::method(Values::Words(&["device", "host"])).default(Word("device")).tacit();

impl Offload {
    pub fn of(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }

    /// Slots on the device for the weights of blocks.
    pub fn buffers(&self) -> usize {
        self.strategy.movement().map_or(0, |movement| movement.buffers())
    }

    /// Whether blocks move at all.
    pub fn moves(&self) -> bool {
        self.strategy.movement().is_some()
    }

    /// Whether gradients have buffers of their own on the host. What updates on the host has the weights
    /// in its masters: gradients may take their place, once the last backward that reads them has.
    pub fn separate_gradients(&self, accumulates: bool) -> bool {
        accumulates || self.optimizer == Memory::Device
    }

    /// What cannot be within the section.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        let reason = match self.strategy.movement() {
            None => Some("blocks that stay on the device keep more than their input"),
            Some(movement) => movement.input_stays(),
        };
        match reason.filter(|_| self.activations == Memory::Host) {
            None => Ok(()),
            Some(reason) => Err(Rule::new(
                &["offload.activations", "offload.strategy"],
                format!(
                    "offload.activations = \"host\" does not go with offload.strategy = \"{}\": {reason}",
                    self.strategy
                ),
                "use offload.strategy = \"overlap\", \"function\" or \"naive\"",
            )),
        }
    }
}
