//! What a [`Cell`] needs of memory, computes and sends.

use crate::common::DeviceId;
use crate::estimate::{Account, Costs, Workload};
use crate::measure::Estimate;
use crate::ops::cost::Operators;
use crate::ops::cost::{Flops, Setting, Works};
use crate::parallel::{DataReduce, Parallel};
use crate::params::table::Tuning;
use crate::recipe::Cell;
use crate::residence::{ResidentBlocks, ShardSizes};

impl Cell {
    /// What a step of it works on, and how.
    pub fn workload(&self) -> Workload<'_> {
        self.workload_of(self.lengths())
    }

    /// Tokens of a sequence that the network reads, and positions that it can read.
    pub(super) fn lengths(&self) -> [usize; 2] {
        [self.train.seq_len + self.tuning().virtual_count(), self.positions()]
    }

    /// [`Cell::workload`], of sequences with these [lengths](Self::lengths).
    pub(super) fn workload_of(&self, [seq_len, positions]: [usize; 2]) -> Workload<'_> {
        Workload {
            device: self.device_id(),
            capability: self.capability,
            precision: &self.precision,
            checkpoint: self.checkpoint,
            ops: self.ops,
            offload: self.offload,
            optimizer: &self.train.optimizer,
            batch_size: self.train.batch_size,
            seq_len,
            positions,
            packed: self.data.is_packed(),
            accumulation_steps: self.train.accumulation_steps,
            accumulates: self.train.accumulation_steps > 1,
            adds_by_block: self.train.graph && self.train.accumulation_steps > 1,
            live_graphs: (self.train.mode.schedule().live_graphs)(self.train.accumulation_steps),
            waiting_inputs: 0,
            eval_batches: self.eval.map_or(0, |eval| eval.batches),
            trained: self.tuning.trained(),
            packs: self.tuning.packs(),
            tensor: 1,
            shard: self.shard_sizes(),
            gathered: 0,
        }
    }

    pub fn operators(&self) -> Operators {
        self.operators_of(&self.workload().setting())
    }

    pub(super) fn operators_of(&self, setting: &Setting) -> Operators {
        self.operators_with(setting, &self.tuning())
    }

    /// `tuning`: the cell's own.
    pub(super) fn operators_with(&self, setting: &Setting, tuning: &Tuning) -> Operators {
        let operators = self.model.operators(setting, tuning);
        if self.train.mode.trains() { operators } else { operators.forward_alone() }
    }

    /// The cell with as many resident blocks as its estimate has room for in `limit` bytes of its device, where the
    /// recipe leaves their number open.
    #[must_use]
    pub fn within(&self, limit: u64) -> Self {
        match self.offload.resident_blocks {
            ResidentBlocks::Auto => Costs::new(self).within(self, limit),
            ResidentBlocks::Count(_) => self.clone(),
        }
    }

    /// What holds each rank's memory at its highest moment, part by part.
    pub fn account(&self) -> Account {
        if let Some(pipeline) = &self.parallel.pipeline {
            return self.account_of_stages(pipeline);
        }
        let (operators, workload) = self.rank();
        operators.account(&workload)
    }

    /// Bytes that each of its ranks needs at its highest moment, from its settings alone.
    pub fn estimate(&self) -> Estimate {
        self.account().estimate()
    }

    /// Bytes that a rank sends in a step by the formulas of what it sums, the most of all ranks: [`Operators::sent`], and
    /// gradients. `None` of one process.
    pub fn sent(&self) -> Option<u64> {
        if let Some(pipeline) = &self.parallel.pipeline {
            return Some(self.sent_of_stages(pipeline));
        }
        if self.parallel.data * self.parallel.tensor == 1 {
            return None;
        }
        let (operators, workload) = self.rank();
        let layers = operators.sent(&workload) * self.train.accumulation_steps as u64;
        let (replicas, trained) = (self.parallel.data as u64, operators.trained());
        if let Some(sizes) = workload.shard {
            return Some(sizes.sent(self.precision.stored_bytes(), self.train.accumulation_steps as u64));
        }
        let gradients = match self.parallel.data_reduce {
            _ if !self.train.mode.trains() => 0,
            DataReduce::AllReduce => Setting::sent_of_sum(trained, replicas),
            // The first sends the weights to each of the others.
            DataReduce::Rank0 => (4 * trained).max((replicas - 1) * trained * self.precision.stored_bytes()),
        };
        Some(layers + gradients)
    }

    /// What a rank computes, and on what.
    fn rank(&self) -> (Operators, Workload<'_>) {
        let workload = self.workload();
        let batch_size = self.train.batch_size.div_ceil(self.parallel.data);
        // A GPU's gradients wait on the host, or in another GPU.
        let gathers = self.parallel.data_reduce == DataReduce::Rank0 && self.device_id() == DeviceId::Cpu;
        let gathered = if gathers { self.parallel.data - 1 } else { 0 };
        let workload = Workload { batch_size, tensor: self.parallel.tensor, gathered, ..workload };
        (self.operators_of(&workload.setting()), workload)
    }

    /// What a rank has of parameters that replicas divide among them.
    fn shard_sizes(&self) -> Option<ShardSizes> {
        let Parallel { shard, data, .. } = self.parallel;
        let table = || self.model.table(self.precision.stored(), &self.tuning());
        (!shard.is_none()).then(table).flatten().map(|table| ShardSizes::of(shard, data, &table))
    }

    /// Of a whole step without padding.
    pub fn flops(&self) -> Flops {
        self.operators().flops(&self.workload()) * self.train.accumulation_steps as f64
    }

    /// What each operator of a rank must do at the least in a whole step without padding; of a pipeline's first rank.
    pub fn works(&self) -> Works {
        if let Some(pipeline) = &self.parallel.pipeline {
            return self.works_of_stages(pipeline);
        }
        let (operators, workload) = self.rank();
        operators.works(&workload)
    }

    /// Of sequences with so many tokens together, whose squared lengths add up to `squares`; of an encoder and a decoder, of
    /// which each has half of both.
    pub fn flops_of(&self, tokens: u64, squares: f64) -> Flops {
        let workload = self.workload();
        let stacks = if self.model.has_encoder() { 2 } else { 1 };
        let squares = squares / stacks as f64;
        let setting = Setting { batch: 1, sequence: tokens / stacks, squares, ..workload.setting() };
        self.operators_of(&setting).flops(&workload)
    }
}
