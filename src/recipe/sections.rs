//! The sections of a recipe that no technique owns: training sizes, evaluation, measurement.

use std::fmt;

use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::common::Bytes;
use crate::keys::key::DefaultValue::{Bool, Depends, Nothing, Number, Whole, Word};
use crate::keys::key::Role;
use crate::keys::section::section;
use crate::keys::values::{COUNT, COUNT_OR_ZERO, POSITIVE, Values};
use crate::keys::{Key, Rule, Section};
use crate::optim::{OptimizerConfig, Schedule};
use crate::parallel::schedule::{self, StepSchedule};

/// Keys at the top of a recipe.
pub(super) const TOP: Section = Section::new("").with(
    "Where a cell runs, and the seed of what is drawn at random.",
    &[
        Key::method(Values::Text)
            .named("device", "\"cpu\", \"cuda:0\" and so on, or \"auto\": the GPU where there is one.")
            .default(Word("auto")),
        Key::size(Values::Whole { least: 0, most: u32::MAX as i64 })
            .named("seed", "Seed of the weights and the data.")
            .default(Whole(42))
            .role(Role::Repetition),
    ],
);

section! {
    /// What one step works on.
    pub struct Train: Section::new("train") => {
        /// Whether a step trains, or only runs forward and keeps nothing for backward.
        ///
        /// Rows from before there was a choice have no such key: it is absent where it says nothing new.
        #[serde(skip_serializing_if = "Mode::trains")]
        pub mode: Mode = Key::method(Values::Words(&["training", "inference"]))
            .default(Word("training")),
        /// Sequences of one micro-batch.
        pub batch_size: usize = Key::size(COUNT).times("train.seq_len"),
        /// Tokens per sequence.
        pub seq_len: usize = Key::size(COUNT).called("sequence length"),
        /// Micro-batches whose gradients are summed before an update.
        pub accumulation_steps: usize = Key::size(COUNT)
            .default(Whole(1))
            .divides("train.batch_size"),
        /// Gradients are scaled down where their norm, over all of them together, is above this.
        pub clip_norm: Option<f64> = Key::method(POSITIVE).default(Nothing),
        /// Which norm decides the clipping: the norm of this step's gradients, or of the step before, which is known earlier.
        ///
        /// Absent in rows where it says nothing new, as `mode`.
        #[serde(skip_serializing_if = "Clip::is_own")]
        pub clip: Clip = Key::method(Values::Words(&["norm", "previous_norm"]))
            .default(Word("norm")),
        /// Whether the host reads each step's loss before it goes on, as `loss.item()` does.
        pub sync_each_step: bool = Key::flag(false),
        /// One CUDA graph records forward and backward of a micro-batch, and the host launches it by one call; `auto`: where a
        /// step can be recorded. Values stay the same.
        ///
        /// A cell that knows its device has one of the two. Absent in rows of steps by launches, as `mode`.
        #[serde(default, deserialize_with = "graph_or_auto", skip_serializing_if = "std::ops::Not::not")]
        pub graph: bool = Key::method(Values::BoolOr(&[AUTO]))
            .default(Word(AUTO))
            .absent(Bool(false)),
    } and {
        /// Whether it is open if a step is a graph: the recipe does not say, and the device is not known.
        #[serde(skip)]
        pub graph_is_open: bool,
        pub optimizer: OptimizerConfig,
        pub schedule: Schedule,
    }
}

section! {
    /// Evaluation on held-out text during the run, outside of the measured times. Without the section there is none.
    #[derive(Copy, Eq)]
    pub struct Eval: Section::new("eval") => {
        /// Steps between evaluations; there is also one before the first step and one after the last.
        pub every: usize =
            Key::method(COUNT),
        /// Batches of `train.batch_size` sequences that an evaluation reads.
        pub batches: usize = Key::method(COUNT).default(Whole(8)),
        /// Whether to measure how far training moves the features of these batches, which the head reads.
        pub feature_distance: bool = Key::flag(false),
    }
}

section! {
    /// How a cell is measured.
    pub struct Measure: Section::new("measure") => {
        /// Steps that run first and are not measured.
        pub warmup: usize = Key::method(COUNT_OR_ZERO).default(Whole(2)),
        /// Steps that are measured.
        ///
        /// Exactly one of `steps` and `epochs` has a value.
        pub steps: Option<usize> =
            Key::method(COUNT).default(Whole(15)).follows(&["measure.epochs"]),
        /// Instead of steps: passes over the training text, in samples or in blocks. The number of steps follows from the
        /// data.
        ///
        /// Strategies need different numbers of steps for the same samples. Those of blocks count the warm-up.
        pub epochs: Option<usize> = Key::method(COUNT).default(Nothing),
        /// Processes that measure the cell, by turns with the other cells. A report judges differences by the
        /// spread between them.
        ///
        /// Each leaves a row. It says how often is measured, not what: no row has it.
        #[serde(skip_serializing)]
        pub repeats: Option<usize> = Key::method(Values::Whole { least: 1, most: 100 })
            .default(Depends("3; 1 if the first takes longer than a minute, or saves something")),
        /// Device memory that the cell's steps must live within, as on a smaller card.
        pub memory_limit: Option<Bytes> =
            Key::method(Values::Bytes).default(Nothing),
        /// Memory of the host that the cell's process must live within: its resident set, without file-backed pages, and
        /// page-locked memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub host_memory_limit: Option<Bytes> = Key::method(Values::Bytes)
            .default(Nothing),
        /// Whether to count the gradients of one more micro-batch, after the last step, by their size.
        pub gradient_histogram: bool = Key::flag(false),
        /// Seconds after which a cell is ended and becomes a `failed` row.
        pub timeout: f64 = Key::method(POSITIVE).default(Number(3600.0)),
    }
}

const AUTO: &str = "auto";

/// `train.graph`: `"auto"` is decided by [`Cell::decide_graph`](super::Cell::decide_graph), once the device is known.
fn graph_or_auto<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    struct Graph;
    impl Visitor<'_> for Graph {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "true, false or \"{AUTO}\"")
        }
        fn visit_bool<E: de::Error>(self, graph: bool) -> Result<bool, E> {
            Ok(graph)
        }
        fn visit_str<E: de::Error>(self, word: &str) -> Result<bool, E> {
            match word {
                AUTO => Ok(false),
                _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
            }
        }
    }
    d.deserialize_any(Graph)
}

/// Warm-up steps that `train.graph` needs: the first computes, and the second is recorded.
pub const WARMUP_OF_A_GRAPH: usize = 2;

/// `train.mode`: what a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Training,
    Inference,
}

impl Mode {
    pub fn trains(&self) -> bool {
        *self == Self::Training
    }

    /// The schedule of a step.
    pub fn schedule(self) -> &'static StepSchedule {
        match self {
            Self::Training => &schedule::STEP,
            Self::Inference => &schedule::INFERENCE,
        }
    }
}

/// `train.clip`: the norm that gradients are clipped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clip {
    #[default]
    Norm,
    /// Of the step before; the first step is not clipped.
    PreviousNorm,
}

impl Clip {
    pub fn is_own(&self) -> bool {
        *self == Self::Norm
    }
}

impl Measure {
    /// Processes of a cell whose recipe does not say how many.
    pub const REPEATS: usize = 3;

    /// Refuses two lengths.
    pub(super) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            self.steps.is_some() && self.epochs.is_some(),
            &["measure.epochs"],
            "`steps` and `epochs` both say how long a cell trains",
            "remove one of them",
        )
    }
}

impl Train {
    /// Refuses what changes updates where there are none.
    pub(super) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            !self.clip.is_own() && self.clip_norm.is_none(),
            &["train.clip"],
            "train.clip = \"previous_norm\" has no effect without train.clip_norm: nothing is clipped",
            "add clip_norm = 1.0, or remove train.clip",
        )?;
        let of_updates = [
            ("train.clip_norm", self.clip_norm.is_some()),
            ("train.schedule", self.schedule != Schedule::default()),
        ];
        let has_updates = self.optimizer.rule().is_some();
        let unused = of_updates.into_iter().find(|(_, written)| *written && !has_updates);
        unused.map_or(Ok(()), |(key, _)| {
            Err(Rule::new(
                &[key],
                format!("{key} has no effect without an optimizer: there is no update that it could change"),
                format!("remove {key}, or write train.optimizer = {{ kind = \"adamw\", lr = 1e-3 }}"),
            ))
        })
    }

    /// Tokens of one micro-batch.
    pub fn tokens(&self) -> usize {
        self.batch_size * self.seq_len
    }

    /// Of all its micro-batches.
    pub fn tokens_of_a_step(&self) -> usize {
        self.tokens() * self.accumulation_steps
    }
}
