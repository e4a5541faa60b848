//! Measurement: time and memory of a cell's steps, measured and estimated.

pub mod alloc;
mod answers;
mod ceilings;
mod cpu;
mod crossing;
mod distance;
mod estimate;
mod evaluation;
mod loading;
mod magnitudes;
mod meter;
pub mod process;
mod rank;
mod samples;
mod scaler;
mod texts;
pub mod trace;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use answers::{Answer, Answers, Continuation, wilson};
pub use ceilings::Ceilings;
pub use cpu::CpuMeter;
pub use crossing::{Crossing, Direction};
pub use distance::FeatureDistance;
pub(crate) use estimate::check_elements;
pub use estimate::{Estimate, elements};
pub use evaluation::Evaluation;
pub use loading::{Counts, Load, Loading};
pub use magnitudes::{FIRST, GradientHistogram, Magnitudes, SMALLEST, SMALLEST_NORMAL};
pub use meter::{Measured, MemoryUse, Meter, Phase, Seconds, Stop, after_last_update, diverged, divergence};
pub use process::ProcessMemory;
pub use rank::{RankRecord, Span, StageTime, largest_memory};
pub use samples::{Samples, median};
pub use scaler::ScalerRecord;
pub use texts::{Piece, QUANTILES, Texts, spread};

use crate::keys::flatten;

/// The measurements of a cell's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Seconds of each phase, one sample a measured step; absent in older rows of graphs, which had one time for both.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forward: Option<Samples>,
    /// Absent of a forward alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backward: Option<Samples>,
    /// What comes between backward and the next forward; absent when the recipe has no optimizer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub optimizer: Option<Samples>,
    /// Seconds that an optimizer on the host worked, behind backward and after it; absent for one on the
    /// device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_update: Option<Samples>,
    /// Bytes of an optimizer's state in files that an update on the host read and wrote a second, at its median.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk_rate: Option<f64>,
    /// The three phases together.
    pub step: Samples,
    /// Tokens of all measured steps, without padding, over the time of the whole run. Rows without a time of the
    /// run have tokens of one step over the median step.
    pub tokens_per_second: f64,
    /// Seconds of all measured steps by the host's clock, the device's queue empty at both ends, without
    /// evaluation; of cells without a sampler, whose `loading` has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_seconds: Option<f64>,
    /// Loss of every step, warm-up included.
    pub loss: Vec<f64>,
    /// Quality on data that is not trained on, as often as the recipe asks.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evaluations: Vec<Evaluation>,
    /// Answers to each test set of the task before training, and then after it, where the recipe asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub answers: Vec<Answers>,
    /// What the model wrote before training, and then after it, where the recipe has prompts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub continuations: Vec<Continuation>,
    /// How far the features of held-out inputs moved, where the recipe asks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub feature_distance: Option<FeatureDistance>,
    /// Absent without a gradient scaler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scaler: Option<ScalerRecord>,
    /// √Σ g² over all gradients of one more step; of cells that update nothing, whose losses say nothing of backward.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gradient_norm: Option<f64>,
    /// Of one more gradient after the last step, where the recipe asks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gradient_histogram: Option<GradientHistogram>,
    pub memory: MemoryUse,
    /// Blocks that stayed on the device, of a cell whose others move.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resident_blocks: Option<usize>,
    /// What crossed the bus in one step more, which was recorded, by launches; of cells with offload on a GPU.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub crossings: Vec<Crossing>,
    /// Which way each part of the work took: `"matmul" → "cuBLASLt"`.
    pub paths: BTreeMap<String, String>,
    /// Model operations of forward and backward (recomputation not counted) in a second of the whole step, update included.
    pub flops_per_second: f64,
    /// Seconds in which the data became ready, and then the network with its weights on the device; absent in rows of earlier
    /// programs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub begin_seconds: Option<[f64; 2]>,
    /// Seconds before the first step in which the device compiled kernels and tuned matrix products;
    /// absent where there is nothing to prepare.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prepare_seconds: Option<f64>,
    /// Steps after which the cell was interrupted and went on in another process. Its times are of all of these
    /// processes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub resumed: Vec<usize>,
    /// What the recipe saves after the last step and could not be written, with the reasons. The measurement is whole.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unsaved: Vec<String>,
    /// Of each rank, where there are several; times of phases are those of the first, and `memory` is that of the one with the most.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ranks: Vec<RankRecord>,
    /// The sizes of the batches; of cells with a sampler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub loading: Option<Loading>,
}

impl Measurement {
    /// Whether a step ran as a CUDA graph. The device may have refused one that the cell asks for.
    pub fn is_graph(&self) -> bool {
        self.paths.get("graph").is_some_and(|path| !path.starts_with("none"))
    }

    /// A row before format 7 counted operations in a second of forward and backward alone.
    #[must_use]
    pub fn with_rate_of_whole_steps(self) -> Self {
        let Some(optimizer) = &self.optimizer else { return self };
        let both = self.step.seconds.iter().zip(&optimizer.seconds).map(|(step, update)| step - update);
        let Some(both) = Samples::of(both.collect()) else { return self };
        let share = match &self.loading {
            // Of samples it was that of all steps together.
            Some(_) => both.seconds.iter().sum::<f64>() / self.step.seconds.iter().sum::<f64>(),
            None => both.median / self.step.median,
        };
        Self { flops_per_second: self.flops_per_second * share, ..self }
    }

    /// On how many devices it was measured; `None` where ranks may have shared GPUs.
    pub fn devices(&self) -> Option<usize> {
        match self.paths.get("ranks") {
            None => Some(1),
            // Each rank has a GPU of its own.
            Some(way) if way.starts_with("NCCL") => Some(self.ranks.len()),
            Some(_) => None,
        }
    }

    /// The dotted key of a number that is not finite, which no row could hold.
    pub fn not_finite(&self) -> Option<String> {
        fn has_null(value: &Value) -> bool {
            match value {
                Value::Array(items) => items.iter().any(has_null),
                Value::Object(items) => items.values().any(has_null),
                value => value.is_null(),
            }
        }
        // JSON has no such numbers: they are null there, and nothing else is.
        let value = serde_json::to_value(self).expect("a measurement is plain data");
        flatten(&value).into_iter().find(|(_, value)| has_null(value)).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing;

    #[test]
    fn ranks_by_nccl_have_a_device_each() {
        let of = |way: Option<&str>| Measurement {
            paths: way.map(|way| ("ranks".to_string(), way.to_string())).into_iter().collect(),
            ranks: vec![RankRecord::default(); 2],
            ..testing::measurement(1.0)
        };
        let ways = [None, Some("NCCL 2.28.3"), Some("sockets, through the host's memory")];
        assert_eq!(ways.map(|way| of(way).devices()), [Some(1), Some(2), None]);
    }

    #[test]
    fn a_number_that_is_not_finite_is_named_wherever_it_stands() {
        assert_eq!(testing::measurement(1.0).not_finite(), None);
        let evaluation = Evaluation { step: 1, loss: f64::NAN, accuracy: 0.0 };
        for (measurement, key) in [
            (Measurement { evaluations: vec![evaluation], ..testing::measurement(1.0) }, "evaluations"),
            (Measurement { loss: vec![1.0, f64::INFINITY], ..testing::measurement(1.0) }, "loss"),
            (
                Measurement { flops_per_second: f64::INFINITY, ..testing::measurement(1.0) },
                "flops_per_second",
            ),
            (Measurement { step: Samples::new(vec![f64::NAN]), ..testing::measurement(1.0) }, "step.max"),
        ] {
            assert_eq!(measurement.not_finite().as_deref(), Some(key));
        }
    }
}
