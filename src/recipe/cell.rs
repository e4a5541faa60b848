//! [`Cell`]: one fully resolved experiment, and its dotted settings.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::save::Save;
use super::sections::{Eval, Measure, Train};
use super::{rules, tagged};
use crate::common::DeviceId;
use crate::data::{Data, Generate, Task};
use crate::device::{Capability, Target};
use crate::keys::{Settings, settings};
use crate::measure::Estimate;
use crate::model::{Account, Model, Operators, Workload};
use crate::ops::cost::{Flops, Setting, Works};
use crate::ops::{Checkpoint, Operator, Ops};
use crate::parallel::{DataReduce, Parallel};
use crate::params::table::Tuning;
use crate::params::tuning::TuningConfig;
use crate::precision::Precision;
use crate::residence::{Offload, ResidentBlocks, ShardSizes};

/// Everything that decides what is computed and how it is measured. It serialises whole: a key that is not
/// written has its default, and one that has no value is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// `"auto"`, `"cpu"` or `"cuda:N"`; of a checked cell never `"auto"`.
    pub device: String,
    /// What is known of the device where the cell is to run: by which kernels it computes, and so how much memory they take.
    #[serde(skip)]
    pub capability: Option<Capability>,
    /// Seed of the weights and the data.
    pub seed: u32,
    pub model: Model,
    pub precision: Precision,
    pub checkpoint: Checkpoint,
    pub ops: Ops,
    pub offload: Offload,
    pub tuning: TuningConfig,
    pub data: Data,
    /// Absent where the model answers no questions, as in rows from before there were tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    pub train: Train,
    /// Absent where one process does it all, as in rows from before there were ranks.
    #[serde(skip_serializing_if = "Parallel::is_alone", default)]
    pub parallel: Parallel,
    pub eval: Option<Eval>,
    /// Absent where the model writes nothing, as in rows from before it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    pub measure: Measure,
    /// Absent where nothing is saved: what is measured is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save: Option<Save>,
}

impl Cell {
    /// The cell in the recipe's spelling, as nested JSON.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("a cell is plain data");
        tagged::flatten_tags(&mut value);
        value
    }

    pub fn settings(&self) -> Settings {
        settings(&self.to_json())
    }

    /// The device this cell runs on, or ran on: of a finished recipe it need not be here.
    pub fn device_id(&self) -> DeviceId {
        DeviceId::named(&self.device)
    }

    /// Processes that measure it, at most. What one of them saves the next would replace.
    pub fn processes(&self) -> usize {
        let default = if self.save.is_some() { 1 } else { Measure::REPEATS };
        self.measure.repeats.unwrap_or(default)
    }

    /// What a step of it works on, and how.
    pub fn workload(&self) -> Workload<'_> {
        Workload {
            device: self.device_id(),
            capability: self.capability,
            precision: &self.precision,
            checkpoint: self.checkpoint,
            ops: self.ops,
            offload: self.offload,
            optimizer: &self.train.optimizer,
            batch_size: self.train.batch_size,
            seq_len: self.train.seq_len + self.tuning().virtual_count(),
            positions: self.positions(),
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

    /// Tokens of a sequence that the network reads, at most, virtual ones included: of a step, or of a prompt with its
    /// answer.
    pub fn positions(&self) -> usize {
        let asks = self.task.as_ref().is_some_and(|task| task.evaluate_generation.is_some());
        let decoder = self.model.decoder().filter(|_| asks || self.generate.is_some());
        let own = self.train.seq_len + self.tuning().virtual_count();
        decoder.map_or(own, |shape| shape.max_positions)
    }

    pub fn operators(&self) -> Operators {
        self.operators_of(&self.workload().setting())
    }

    fn operators_of(&self, setting: &Setting) -> Operators {
        let operators = self.model.operators(setting, &self.tuning());
        if self.train.mode.trains() { operators } else { operators.forward_alone() }
    }

    /// Which parameters are trained, and what is added to the network.
    pub fn tuning(&self) -> Tuning {
        let tuning = Tuning { classes: self.classes(), ..self.tuning.tuning(self.seed) };
        if self.train.mode.trains() { tuning } else { tuning.frozen() }
    }

    /// Of the task's classifier.
    pub fn classes(&self) -> Option<usize> {
        self.task.as_ref()?.kind.classes()
    }

    /// The cell with the method by which the step after so many updates trains.
    pub fn after(&self, updates: usize) -> Cow<'_, Self> {
        match self.tuning.phase(updates) {
            None => Cow::Borrowed(self),
            Some(tuning) => Cow::Owned(Self { tuning, ..self.clone() }),
        }
    }

    /// Whether no rule refuses it on its device, which `target` has.
    pub fn is_permitted(&self, target: &Target) -> bool {
        rules::check(self, |_| false).is_ok()
            && rules::on_device(self, self.device_id(), target, |_| false).is_ok()
    }

    /// The cell with as many resident blocks as its estimate has room for in `limit` bytes of its device, where the
    /// recipe leaves their number open.
    #[must_use]
    pub fn within(&self, limit: u64) -> Self {
        if self.offload.resident_blocks != ResidentBlocks::Auto {
            return self.clone();
        }
        let with = |count: usize| self.with_resident_blocks(Some(count));
        let fits = |count: usize| with(count).estimate().total() <= self.device_id().room(limit);
        // All of them need no slots. Of fewer, more need as much memory or more: the largest number is found by halving.
        let blocks = self.operators().blocks;
        if fits(blocks) {
            return with(blocks);
        }
        let (mut most, mut beyond) = (0, blocks);
        while most + 1 < beyond {
            let middle = usize::midpoint(most, beyond);
            match fits(middle) {
                true => most = middle,
                false => beyond = middle,
            }
        }
        with(most)
    }

    /// The cell with so many resident blocks; `None`: as many as it has. A row has the number where a recipe leaves it open.
    #[must_use]
    pub fn with_resident_blocks(&self, count: Option<usize>) -> Self {
        let mut cell = self.clone();
        if let Some(count) = count {
            cell.offload.resident_blocks = ResidentBlocks::Count(count);
        }
        cell
    }

    /// Whether each update needs the norm over all gradients: to clip by it, or to see whether it is finite.
    pub fn needs_norm(&self) -> bool {
        self.precision.scaler.is_some() || self.train.clip_norm.is_some()
    }

    /// Whether no update can begin before all gradients of its step are there.
    pub fn awaits_norm(&self) -> bool {
        self.precision.scaler.is_some() || (self.train.clip_norm.is_some() && self.train.clip.is_own())
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

    /// Of sequences with so many tokens together, whose squared lengths add up to `squares`.
    pub fn flops_of(&self, tokens: u64, squares: f64) -> Flops {
        let workload = self.workload();
        let setting = Setting { batch: 1, sequence: tokens, squares, ..workload.setting() };
        self.operators_of(&setting).flops(&workload)
    }

    /// The operators that the network has, by their names in the recipe, and which implementations run.
    pub fn chosen_operators(&self) -> impl Iterator<Item = (&'static str, Operator)> {
        let names = self.model.operator_names();
        self.ops.all().into_iter().filter(move |(name, _)| names.contains(name))
    }
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
