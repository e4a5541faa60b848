//! [`Offload`]: the recipe's `[offload]` section.

use serde::{Deserialize, Serialize};

use super::resident_blocks::ResidentBlocks;
use crate::device::{Buffers, DeviceId};
use crate::words::Rule;
use crate::words::key::{DefaultValue, DefaultValue::Word, Key, Section, Values};

/// `[offload]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Offload {
    pub strategy: Strategy,
    /// Slots on the device for the weights of blocks that move: how far ahead `overlap` copies.
    pub buffers: usize,
    /// Blocks that stay on the device.
    pub resident_blocks: ResidentBlocks,
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
    /// Whether weights are updated.
    pub updates: bool,
    /// Whether backward computes resident blocks again; it does so with those that move.
    pub recomputes: bool,
}

impl Placement {
    /// What a block has on the host.
    pub fn buffers(&self, resident: bool, trains: bool) -> Buffers {
        let Self { offload, accumulates, updates, .. } = *self;
        match resident {
            true if !trains || !offload.resident_buffers(accumulates, updates) => Buffers::None,
            false if trains && offload.separate_gradients(accumulates) => Buffers::Two,
            true | false => Buffers::One,
        }
    }
}

/// Which memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    #[default]
    Device,
    Host,
}

/// How blocks come to the device and leave it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Strategy {
    /// They stay on the device.
    #[default]
    None,
    /// The host waits for every copy and every block; after each block all are on the host.
    Naive,
    /// As naive, with the general checkpoint operator inside and the moves as operators around it.
    Checkpointed,
    /// One operator moves, computes and recomputes; the device waits for the copies, not the host.
    Function,
    /// As function, with the copies of other blocks behind the computation of one.
    Overlap,
}

/// The section as written.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    strategy: Strategy,
    /// Of `overlap` alone: other strategies have one.
    buffers: Option<usize>,
    resident_blocks: ResidentBlocks,
    activations: Memory,
    optimizer: Memory,
}

/// Slots of `overlap` where no number is written.
const BUFFERS: usize = 3;

const MEMORY: Values = Values::Words(&["device", "host"]);

impl From<Written> for Offload {
    fn from(Written { strategy, buffers, resident_blocks, activations, optimizer }: Written) -> Self {
        let default = if strategy == Strategy::Overlap { BUFFERS } else { 1 };
        Self { strategy, buffers: buffers.unwrap_or(default), resident_blocks, activations, optimizer }
    }
}

impl From<Offload> for Written {
    fn from(Offload { strategy, buffers, resident_blocks, activations, optimizer }: Offload) -> Self {
        let said = strategy == Strategy::Overlap || buffers != 1;
        Self { strategy, buffers: said.then_some(buffers), resident_blocks, activations, optimizer }
    }
}

impl Default for Offload {
    fn default() -> Self {
        Written::default().into()
    }
}

impl Strategy {
    pub const ALL: [Self; 5] = [Self::None, Self::Naive, Self::Checkpointed, Self::Function, Self::Overlap];
}

impl Offload {
    pub const SECTIONS: &[Section] = &[
        Section::new(
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
                    "resident_blocks",
                    ResidentBlocks::VALUES,
                    DefaultValue::Whole(0),
                    "Blocks that stay on the device; \"auto\": as many as `measure.memory_limit`, or the free memory, has \
                     room for.",
                )
                .reads(&[
                    ("0", "no resident block"),
                    ("1", "1 resident block"),
                    ("auto", "resident blocks that fit"),
                    ("", "{} resident blocks"),
                ])
                .tacit()
                .moot("offload.strategy", "none")
                .since(2),
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
        ),
        Section::of("offload", "strategy", &["none"], "Blocks stay on the device.", &[]),
        Section::of("offload", "strategy", &["naive"], "The host waits for every copy and every block.", &[]),
        Section::of(
            "offload",
            "strategy",
            &["checkpointed"],
            "As naive, with the general checkpoint operator inside and the moves as operators around it.",
            &[],
        ),
        Section::of(
            "offload",
            "strategy",
            &["function"],
            "One operator moves, computes and recomputes; the device waits for the copies, not the host.",
            &[],
        ),
        Section::of(
            "offload",
            "strategy",
            &["overlap"],
            "As function, with the copies of other blocks behind the computation of one.",
            &[Key::method(
                "buffers",
                Values::Whole { least: 1, most: 4 },
                DefaultValue::Whole(BUFFERS as i64),
                "Slots on the device for the weights of blocks: how far ahead to copy.",
            )
            .reads(&[("1", "1 buffer"), ("", "{} buffers")])],
        ),
    ];

    pub fn of(strategy: Strategy) -> Self {
        Written { strategy, ..Written::default() }.into()
    }

    /// Whether blocks move at all.
    pub fn moves(&self) -> bool {
        self.strategy != Strategy::None
    }

    /// Whether gradients of blocks that move have buffers of their own on the host. What updates on the host has the
    /// weights in its masters: gradients may take their place, once the last backward that reads them has.
    pub fn separate_gradients(&self, accumulates: bool) -> bool {
        accumulates || self.optimizer == Memory::Device
    }

    /// Whether gradients of resident blocks stay on the device: they are added up there, or used. Else they leave
    /// as they come, and as many more blocks have room.
    pub fn keeps_gradients(&self, accumulates: bool, updates: bool) -> bool {
        accumulates || (updates && self.optimizer == Memory::Device)
    }

    /// Whether resident blocks have buffers on the host, which gradients and updated weights cross in.
    pub fn resident_buffers(&self, accumulates: bool, updates: bool) -> bool {
        !self.keeps_gradients(accumulates, updates) || self.optimizer == Memory::Host
    }

    /// What cannot be within the section.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        if !(1..=4).contains(&self.buffers) {
            return Err(Rule::new(
                &["offload.buffers"],
                format!("offload.buffers = {} is not from 1 to 4", self.buffers),
                "use 3: one block computes, one is there, one is on its way",
            ));
        }
        if self.strategy != Strategy::Overlap && self.buffers != 1 {
            return Err(Rule::new(
                &["offload.buffers", "offload.strategy"],
                format!(
                    "offload.buffers has no effect with offload.strategy = \"{}\": one block is on the device at a time",
                    self.strategy.into_str()
                ),
                "remove offload.buffers, or use offload.strategy = \"overlap\"",
            ));
        }
        if self.strategy == Strategy::None && self.resident_blocks != ResidentBlocks::default() {
            return Err(Rule::new(
                &["offload.resident_blocks", "offload.strategy"],
                "offload.resident_blocks has no effect with offload.strategy = \"none\": all blocks stay on the device",
                "remove offload.resident_blocks, or use offload.strategy = \"overlap\"",
            ));
        }
        let reason = match self.strategy {
            Strategy::None => "blocks that stay on the device keep more than their input",
            Strategy::Checkpointed => "the general checkpoint operator keeps the input of a block itself",
            Strategy::Naive | Strategy::Function | Strategy::Overlap => return Ok(()),
        };
        if self.activations == Memory::Host {
            return Err(Rule::new(
                &["offload.activations", "offload.strategy"],
                format!(
                    "offload.activations = \"host\" does not go with offload.strategy = \"{}\": {reason}",
                    self.strategy.into_str()
                ),
                "use offload.strategy = \"overlap\", \"function\" or \"naive\"",
            ));
        }
        Ok(())
    }
}
