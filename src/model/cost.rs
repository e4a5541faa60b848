//! A training step's memory and arithmetic: the fold of its operators' costs, and what else the device holds.

use crate::device::DeviceId;
use crate::measure::Estimate;
use crate::ops::cost::{Cost, Flops, Moment, Setting};
use crate::ops::{Level, Operator, Ops};
use crate::optim::OptimizerConfig;
use crate::precision::Precision;
use crate::residence::{Moved, Offload};

/// What a step of a network works on, and how.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    pub device: DeviceId,
    pub precision: &'a Precision,
    pub level: Level,
    pub ops: Ops,
    pub offload: Offload,
    pub optimizer: &'a OptimizerConfig,
    /// Sequences of a micro-batch, and tokens of each.
    pub batch_size: usize,
    pub seq_len: usize,
    /// Whether all of them are one sequence of packed samples.
    pub packed: bool,
    pub accumulation_steps: usize,
    /// Batches that evaluation reads.
    pub eval_batches: usize,
    /// Blocks of a segment that backward computes again from its input; 0: none.
    pub segment: usize,
}

impl Workload<'_> {
    /// Of one micro-batch.
    pub fn setting(&self) -> Setting {
        let (batch, sequence) = (self.batch_size as u64, self.seq_len as u64);
        let squares = (batch * sequence * sequence) as f64;
        // Composed attention holds the scores of all tokens with each other.
        let square = self.packed && self.ops.attention == Operator::Plain;
        let (batch, sequence) = if square { (1, batch * sequence) } else { (batch, sequence) };
        Setting {
            device: self.device,
            batch,
            sequence,
            squares,
            compute: self.precision.compute,
            stored: self.precision.stored_bytes(),
            keeps_casts: self.accumulation_steps > 1 && !self.offload.moves(),
            ops: self.ops,
            level: self.level,
        }
    }
}

/// The operators of a network, in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// Before the blocks.
    pub first: Vec<Cost>,
    pub block: Vec<Cost>,
    pub blocks: usize,
    /// After the blocks, the loss included.
    pub last: Vec<Cost>,
    /// Bytes of a micro-batch, and of tables that no step changes.
    pub batch: u64,
    pub tables: u64,
}

impl Outline {
    pub fn parameters(&self) -> u64 {
        self.block_parameters() * self.blocks as u64
            + self.first.iter().chain(&self.last).map(|cost| cost.parameters).sum::<u64>()
    }

    pub fn block_parameters(&self) -> u64 {
        self.block.iter().map(|cost| cost.parameters).sum()
    }

    /// Of one micro-batch.
    pub fn flops(&self, workload: &Workload) -> Flops {
        self.whole(workload).flops
    }

    /// All of it, as forward and backward of one micro-batch go through it.
    fn whole(&self, workload: &Workload) -> Cost {
        let block = Cost::sequence(&self.block);
        let mut parts = self.first.clone();
        if workload.offload.moves() {
            parts.extend(vec![workload.offload.block(block.recomputed(), workload.device); self.blocks]);
        } else if workload.segment > 0 {
            let all = vec![block; self.blocks];
            parts.extend(all.chunks(workload.segment).map(|segment| Cost::sequence(segment).recomputed()));
        } else {
            (0..self.blocks).for_each(|_| parts.extend(&self.block));
        }
        parts.extend(&self.last);
        Cost::sequence(&parts)
    }

    /// Sizes of what moves between the host and the device.
    fn moved(&self, workload: &Workload) -> Moved {
        let blocks = self.blocks as u64;
        Moved {
            blocks,
            parameters: self.block_parameters(),
            others: self.parameters() - self.block_parameters() * blocks,
            input: self.block.first().map_or(0, |cost| cost.input),
            stored: workload.precision.stored_bytes(),
            accumulates: workload.accumulation_steps > 1,
        }
    }

    /// What is there during a micro-batch besides weights and optimizer state, and during an update.
    fn there(&self, workload: &Workload) -> (Moment, Moment) {
        let Workload { device, offload, optimizer, precision, .. } = *workload;
        let whole = self.whole(workload);
        let moved = self.moved(workload);
        let batches = (workload.accumulation_steps + workload.eval_batches) as u64;
        let there = self.tables + batches * self.batch + offload.slot_bytes(&moved, device);
        let updated = if offload.moves() { moved.parameters } else { whole.largest };
        let workspace =
            optimizer.workspace_bytes(device, offload.optimizer, updated, precision.stored_bytes());
        // Of earlier micro-batches, to which more are added.
        let earlier = if moved.accumulates { whole.gradients } else { 0 };
        (
            Moment::workspace(there) + Moment::gradients(earlier),
            Moment::workspace(there + workspace) + Moment::gradients(whole.gradients),
        )
    }

    /// Bytes at the highest moment of a step: of its last micro-batch, or of its update.
    pub fn estimate(&self, workload: &Workload) -> Estimate {
        let Workload { offload, optimizer, .. } = *workload;
        let whole = self.whole(workload);
        let (there, update) = self.there(workload);
        let highest = Moment::highest([there + whole.forward, there + whole.backward, update]);
        Estimate {
            weights: whole.weights + whole.casts,
            gradients: highest.gradients,
            optimizer: optimizer.state_bytes(offload.optimizer, self.parameters()),
            activations: highest.kept,
            workspace: highest.workspace,
            host: offload.host_bytes(&self.moved(workload)),
            kept: whole.kept,
        }
    }
}

impl Outline {
    pub fn phases(&self, workload: &Workload) -> [u64; 4] {
        let whole = self.whole(workload);
        let e = self.estimate(workload);
        let base = e.weights + e.optimizer;
        let (there, update) = self.there(workload);
        [base + (there + whole.forward).total(), base + (there + whole.backward).total(), base + update.total(), base + there.total() + whole.kept]
    }
}
