//! [`Cell`]: one fully resolved experiment, and its dotted settings.

use std::borrow::Cow;

use burn::tensor::DType;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::log::Log;
use super::save::Save;
use super::sections::{Eval, Measure, Train};
use super::{rules, tagged};
use crate::common::DeviceId;
use crate::data::{Data, Generate, Task};
use crate::device::{Capability, Target};
use crate::keys::{Rule, Settings, settings};
use crate::model::Model;
use crate::ops::{Checkpoint, Operator, Ops};
use crate::parallel::Parallel;
use crate::params::table::{Table, Tuning};
use crate::params::tuning::TuningConfig;
use crate::precision::Precision;
use crate::residence::{Offload, ResidentBlocks};

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
    /// Where its steps are logged: it says nothing of what is measured, and no row has it.
    #[serde(skip_serializing)]
    pub log: Option<Log>,
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

    /// Tokens of a sequence that the network reads, at most, virtual ones included: of a step, or of a prompt with its
    /// answer.
    pub fn positions(&self) -> usize {
        let asks = self.task.as_ref().is_some_and(|task| task.evaluate_generation.is_some());
        let decoder = self.model.decoder().filter(|_| asks || self.generate.is_some());
        let own = self.train.seq_len + self.tuning().virtual_count();
        decoder.map_or(own, |shape| shape.max_positions)
    }

    /// Which parameters are trained, and what is added to the network.
    pub fn tuning(&self) -> Tuning {
        let tuning = self.tuning.tuning(self.seed, &|| own_parameters(&self.model));
        let tuning = Tuning { classes: self.classes(), ..tuning };
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

    /// The first rule across sections that refuses it, whatever its device has.
    pub fn refusal(&self) -> Option<Rule> {
        rules::check(self, |_| false).err()
    }

    /// Whether no rule refuses it on its device, which `target` has.
    pub fn is_permitted(&self, target: &Target) -> bool {
        self.refusal().is_none() && rules::on_device(self, self.device_id(), target, |_| false).is_ok()
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

    /// `train.optimizer.lr`; `None` without an optimizer.
    pub fn learning_rate(&self) -> Option<f64> {
        self.settings().get("train.optimizer.lr").and_then(Value::as_f64)
    }

    /// Whether each update needs the norm over all gradients: to clip by it, or to see whether it is finite.
    pub fn needs_norm(&self) -> bool {
        self.precision.scaler.is_some() || self.train.clip_norm.is_some()
    }

    /// Whether no update can begin before all gradients of its step are there.
    pub fn awaits_norm(&self) -> bool {
        self.precision.scaler.is_some() || (self.train.clip_norm.is_some() && self.train.clip.is_own())
    }

    /// The operators that the network has, by their names in the recipe, and which implementations run.
    pub fn chosen_operators(&self) -> impl Iterator<Item = (&'static str, Operator)> {
        let names = self.model.operator_names();
        self.ops.all().into_iter().filter(move |(name, _)| names.contains(name))
    }
}

/// The parameters of a language model without what tuning adds.
pub fn own_parameters(model: &Model) -> Table {
    model.table(DType::F32, &Tuning::default()).unwrap_or_default()
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
