//! [`Offload`]: the recipe's `[offload]` section.

use serde::{Deserialize, Serialize};

use crate::device::DeviceId;
use crate::words::key::DefaultValue::{Whole, Word};
use crate::words::section::section;
use crate::words::values::Values;
use crate::words::{Key, Rule, Section};

/// `[offload]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Offload {
    pub strategy: Strategy,
    /// Slots on the device for the weights of blocks: how far ahead `overlap` copies.
    pub buffers: usize,
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

section! {
    /// Where the weights and gradients of transformer blocks live.
    ///
    /// As written.
    #[derive(Default)]
    struct Written: Section::new("offload") => {
        /// How blocks come to the device and leave it.
        strategy: Strategy =
            Key::method(Values::Kinds).default(Word("none")).reads(&[("none", "no offload")]),
        /// Where each block's input waits for backward.
        activations: Memory = MEMORY.reads(&[("", "activations on {}")]),
        /// Where AdamW runs, with its fp32 master weights and moments.
        optimizer: Memory = MEMORY.reads(&[("", "optimizer on {}")]),
    } and {
        /// Of `overlap` alone: other strategies have one.
        buffers: Option<usize>,
    }
}

/// Slots of `overlap` where no number is written.
const BUFFERS: usize = 3;

const MEMORY: Key = Key::method(Values::Words(&["device", "host"])).default(Word("device")).tacit();

impl From<Written> for Offload {
    fn from(Written { strategy, buffers, activations, optimizer }: Written) -> Self {
        let default = if strategy == Strategy::Overlap { BUFFERS } else { 1 };
        Self { strategy, buffers: buffers.unwrap_or(default), activations, optimizer }
    }
}

impl From<Offload> for Written {
    fn from(Offload { strategy, buffers, activations, optimizer }: Offload) -> Self {
        let said = strategy == Strategy::Overlap || buffers != 1;
        Self { strategy, buffers: said.then_some(buffers), activations, optimizer }
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
        Written::SECTION,
        Section::of("offload", "strategy", &["none"]).with("Blocks stay on the device.", &[]),
        Section::of("offload", "strategy", &["naive"])
            .with("The host waits for every copy and every block.", &[]),
        Section::of("offload", "strategy", &["checkpointed"]).with(
            "As naive, with the general checkpoint operator inside and the moves as operators around it.",
            &[],
        ),
        Section::of("offload", "strategy", &["function"]).with(
            "One operator moves, computes and recomputes; the device waits for the copies, not the host.",
            &[],
        ),
        Section::of("offload", "strategy", &["overlap"]).with(
            "As function, with the copies of other blocks behind the computation of one.",
            &[Key::method(Values::Whole { least: 1, most: 4 })
                .named("buffers", "Slots on the device for the weights of blocks: with 3 one computes, one is there, one is on its way.")
                .default(Whole(BUFFERS as i64))
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

    /// Whether gradients have buffers of their own on the host. What updates on the host has the weights
    /// in its masters: gradients may take their place, once the last backward that reads them has.
    pub fn separate_gradients(&self, accumulates: bool) -> bool {
        accumulates || self.optimizer == Memory::Device
    }

    /// What cannot be within the section.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            self.strategy != Strategy::Overlap && self.buffers != 1,
            &["offload.buffers", "offload.strategy"],
            format!(
                "offload.buffers has no effect with offload.strategy = \"{}\": one block is on the device at a time",
                self.strategy.into_str()
            ),
            "remove offload.buffers, or use offload.strategy = \"overlap\"",
        )?;
        let reason = match self.strategy {
            Strategy::None => "blocks that stay on the device keep more than their input",
            Strategy::Checkpointed => "the general checkpoint operator keeps the input of a block itself",
            Strategy::Naive | Strategy::Function | Strategy::Overlap => return Ok(()),
        };
        Rule::refuse_if(
            self.activations == Memory::Host,
            &["offload.activations", "offload.strategy"],
            format!(
                "offload.activations = \"host\" does not go with offload.strategy = \"{}\": {reason}",
                self.strategy.into_str()
            ),
            "use offload.strategy = \"overlap\", \"function\" or \"naive\"",
        )
    }
}
