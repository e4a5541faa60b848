//! [`Workload`]: what a step's memory and arithmetic depend on besides the network.

use crate::common::DeviceId;
use crate::device::Capability;
use crate::ops::cost::{Setting, Trained};
use crate::ops::{Checkpoint, Operator, Ops};
use crate::optim::OptimizerConfig;
use crate::precision::Precision;
use crate::residence::{Offload, Shard, ShardSizes};

/// What a step of a network works on, and how.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    pub device: DeviceId,
    /// `None`: the device has every feature.
    pub capability: Option<Capability>,
    pub precision: &'a Precision,
    pub checkpoint: Checkpoint,
    pub ops: Ops,
    pub offload: Offload,
    pub optimizer: &'a OptimizerConfig,
    /// Sequences of a micro-batch, and tokens of each.
    pub batch_size: usize,
    pub seq_len: usize,
    /// Positions that the network can read: those of a step, or more where it also generates text.
    pub positions: usize,
    /// Whether all of them are one sequence of packed samples.
    pub packed: bool,
    pub accumulation_steps: usize,
    /// Whether gradients of earlier micro-batches wait while those of one more are computed.
    pub accumulates: bool,
    /// Whether gradients are added to those of earlier micro-batches as soon as the backward of their block is over.
    pub adds_by_block: bool,
    /// Micro-batches whose forward waits for its backward at once; 0: a forward alone.
    pub live_graphs: usize,
    /// Micro-batches of which the input alone waits for backward.
    pub waiting_inputs: usize,
    /// Batches that evaluation reads.
    pub eval_batches: usize,
    /// Which of the model's own parameters are trained.
    pub trained: Trained,
    /// Whether the weights of blocks' linear layers are stored in 4 bits.
    pub packs: bool,
    /// Ranks that layers are divided among; 1: of all of them together.
    pub tensor: usize,
    /// What a rank has of parameters that replicas divide; `None`: everything.
    pub shard: Option<ShardSizes>,
    /// Replicas whose gradients come to the first one's memory, perhaps while it is in backward.
    pub gathered: usize,
}

impl Workload<'_> {
    /// Whether no backward follows a forward.
    pub(super) fn is_forward_alone(&self) -> bool {
        self.live_graphs == 0
    }

    /// Whether casts of weights are kept for a whole step. Those of a block that moves are freed with it; backward
    /// holds on to those of one micro-batch by itself, but of recomputed blocks. On CUDA one launch makes all of them.
    /// A forward alone frees each after its product.
    pub fn keeps_casts(&self) -> bool {
        let all_at_once = self.device != DeviceId::Cpu && self.checkpoint.blocks == 0;
        !self.offload.moves()
            && !self.gathers()
            && !self.is_forward_alone()
            && (self.accumulation_steps > 1 || all_at_once)
    }

    /// Whether the weights of blocks come from all ranks for their turns.
    pub(super) fn gathers(&self) -> bool {
        self.shard.is_some_and(|sizes| sizes.shard == Shard::Weights)
    }

    /// Of one micro-batch.
    pub fn setting(&self) -> Setting {
        let (batch, sequence) = (self.batch_size as u64, self.seq_len as u64);
        let squares = (batch * sequence) as f64 * sequence as f64;
        // Composed attention holds the scores of all tokens with each other.
        let square = self.packed && self.ops.attention == Operator::Plain;
        let (batch, sequence) = if square { (1, batch * sequence) } else { (batch, sequence) };
        Setting {
            device: self.device,
            capability: self.capability,
            batch,
            sequence,
            squares,
            compute: self.precision.compute,
            stored: self.precision.stored_bytes(),
            keeps_casts: self.keeps_casts(),
            ops: self.ops,
            level: self.checkpoint.level,
            ample: self.checkpoint.keeps_all() && !self.offload.moves() && !self.gathers(),
            trained: self.trained,
            packs: self.packs,
            tensor: self.tensor as u64,
        }
    }
}
