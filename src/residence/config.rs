//! [`Offload`]: the recipe's `[offload]` section.

use serde::{Deserialize, Serialize};

use super::strategy::Strategy;
use crate::device::DeviceId;
use crate::words::Rule;
use crate::words::key::{DefaultValue::Word, Key, Section, Values};

/// `[offload]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Offload {
    pub strategy: Strategy,
    /// Where each block's input waits for backward.
    pub activations: Memory,
    /// Where AdamW runs, with fp32 master weights and moments beside it.
    pub optimizer: Memory,
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

const MEMORY: Values = Values::Words(&["device", "host"]);

impl Offload {
    /// The keys that go with every strategy.
    pub const SECTION: Section = Section::new(
        "offload",
        "Where the weights and gradients of transformer blocks live.",
        &[
            Key::method(
                "strategy",
                Values::Kinds,
                Word("none"),
                "How blocks come to the device and leave it.",
            )
            .reads(&[("none", "no offload")]),
            Key::method(
                "activations",
                MEMORY,
                Word("device"),
                "Where each block's input waits for backward.",
            )
            .reads(&[("", "activations on {}")])
            .tacit(),
            Key::method(
                "optimizer",
                MEMORY,
                Word("device"),
                "Where AdamW runs, with its fp32 master weights and moments.",
            )
            .reads(&[("", "optimizer on {}")])
            .tacit(),
        ],
    );

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
