//! [`Offload`]: the recipe's `[offload]` section.

use serde::{Deserialize, Serialize};

use super::resident_blocks::ResidentBlocks;
use super::strategy::Strategy;
use crate::common::DeviceId;
use crate::common::cache;
use crate::device::Buffers;
use crate::keys::key::DefaultValue::{Whole, Word};
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Rule, Section};
use crate::measure::alloc::Room;

section! {
    /// Where the weights and gradients of transformer blocks live.
    #[derive(Copy, Default, Eq)]
    pub struct Offload: Section::new("offload") => {
        /// How blocks come to the device and leave it.
        pub strategy: Strategy =
            Key::method(Values::Kinds).default(Word("none")).called("offload"),
        /// Blocks that stay on the device; "auto": as many as `measure.memory_limit`, or the free memory, has room for.
        pub resident_blocks: ResidentBlocks = Key::method(ResidentBlocks::VALUES)
            .default(Whole(0)),
        /// Where each block's input waits for backward.
        pub activations: Memory = MEMORY.called("activations on"),
        /// Where AdamW runs, with its fp32 master weights and moments.
        pub optimizer: Memory = MEMORY.called("optimizer on"),
        /// Where master weights and moments of an optimizer on the host are: in its memory, or in files that are mapped, in
        /// `state/` of the cache folder.
        ///
        /// Absent in rows where it says nothing new.
        #[serde(skip_serializing_if = "StatePlace::is_memory")]
        pub optimizer_state: StatePlace = Key::method(Values::Words(&["memory", "disk"]))
            .default(Word("memory")),
    }
}

/// Where the blocks of a network live, and how their gradients are used.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub offload: Offload,
    pub device: DeviceId,
    /// Whether gradients of several micro-batches are added up.
    pub accumulates: bool,
    /// Whether weights are updated.
    pub updates: bool,
    /// Whether backward computes resident blocks again, as it always does with those that move.
    pub recomputes: bool,
}

impl Placement {
    /// The buffers of a block on the host.
    pub fn buffers(&self, resident: bool, trains: bool) -> Buffers {
        let Self { offload, accumulates, updates, .. } = *self;
        match resident {
            true if !trains || !offload.resident_buffers(accumulates, updates) => Buffers::None,
            false if trains && offload.separate_gradients(accumulates) => Buffers::Two,
            true | false => Buffers::One,
        }
    }
}

/// A place in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    #[default]
    Device,
    Host,
}

/// Where an optimizer on the host keeps its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatePlace {
    #[default]
    Memory,
    Disk,
}

impl StatePlace {
    pub fn is_memory(&self) -> bool {
        *self == Self::Memory
    }

    /// Files without names are in the cache folder, whoever else can write there, or without one in the system's temporary
    /// folder.
    pub fn room(self) -> Room {
        match self {
            Self::Memory => Room::Memory,
            Self::Disk => Room::Files(cache::location().unwrap_or_else(std::env::temp_dir).join("state")),
        }
    }
}

const MEMORY: Key = Key::method(Values::Words(&["device", "host"])).default(Word("device"));

impl Offload {
    pub fn of(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }

    /// Slots on the device for the weights of blocks that move.
    pub fn buffers(&self) -> usize {
        self.strategy.movement().map_or(0, |movement| movement.buffers())
    }

    /// Whether blocks move at all.
    pub fn moves(&self) -> bool {
        self.strategy.movement().is_some()
    }

    /// Whether gradients of blocks that move have their own buffers on the host. An optimizer on the host has the weights in
    /// its masters, so gradients may overwrite them after the last backward that reads them.
    pub fn separate_gradients(&self, accumulates: bool) -> bool {
        accumulates || self.optimizer == Memory::Device
    }

    /// Whether gradients of resident blocks stay on the device, to be added up or used there. Otherwise they leave at once,
    /// and their memory has room for more blocks.
    pub fn keeps_gradients(&self, accumulates: bool, updates: bool) -> bool {
        accumulates || (updates && self.optimizer == Memory::Device)
    }

    /// Whether resident blocks have buffers on the host, for gradients and updated weights.
    pub fn resident_buffers(&self, accumulates: bool, updates: bool) -> bool {
        !self.keeps_gradients(accumulates, updates) || self.optimizer == Memory::Host
    }

    /// Refuses keys of the section that do not go together.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            !self.moves() && self.resident_blocks != ResidentBlocks::default(),
            &["offload.resident_blocks", "offload.strategy"],
            "offload.resident_blocks has no effect with offload.strategy = \"none\": all blocks stay on the device",
            "remove offload.resident_blocks, or use offload.strategy = \"overlap\"",
        )?;
        Rule::refuse_if(
            !self.optimizer_state.is_memory() && self.optimizer == Memory::Device,
            &["offload.optimizer_state", "offload.optimizer"],
            "offload.optimizer_state = \"disk\" has no effect on an optimizer on the device, whose state is there",
            "add optimizer = \"host\" under [offload], or remove optimizer_state",
        )?;
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
