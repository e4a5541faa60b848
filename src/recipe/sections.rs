//! The sections of a recipe that no technique owns: training sizes, evaluation, measurement.

use serde::{Deserialize, Serialize};

use crate::optim::{OptimizerConfig, Schedule};
use crate::words::key::{COUNT, COUNT_OR_ZERO, DefaultValue, Key, POSITIVE, Role, Section, Values};
use crate::words::{Bytes, Rule, values};

/// `device = "auto" | "cpu" | "cuda:N"`. Resolved to a real device before a cell is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceName(pub String);

impl Default for DeviceName {
    fn default() -> Self {
        Self("auto".into())
    }
}

/// `[train]`: what one step works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Sequences of one micro-batch.
    #[serde(deserialize_with = "values::count")]
    pub batch_size: usize,
    /// Tokens per sequence.
    #[serde(deserialize_with = "values::count")]
    pub seq_len: usize,
    /// Micro-batches whose gradients are summed before an update.
    #[serde(default = "one", deserialize_with = "values::count")]
    pub accumulation_steps: usize,
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// The norm over all gradients is scaled down to this at most.
    #[serde(default, deserialize_with = "values::positive")]
    pub clip_norm: Option<f64>,
    #[serde(default)]
    pub schedule: Schedule,
    /// Whether the host reads each step's loss before it goes on, as `loss.item()` does.
    #[serde(default)]
    pub sync_each_step: bool,
}

fn one() -> usize {
    1
}

/// `[eval]`: quality on held-out data during the run; outside of the measured times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    /// Steps between evaluations; there is one before the first step and one after the last too.
    #[serde(deserialize_with = "values::count")]
    pub every: usize,
    /// Batches of `train.batch_size` sequences an evaluation reads.
    #[serde(default = "batches", deserialize_with = "values::count")]
    pub batches: usize,
}

fn batches() -> usize {
    8
}

/// Keys at the top of a recipe.
pub(super) const TOP: Section = Section::new(
    "",
    "Where a cell runs, and what is drawn at random.",
    &[
        Key::method(
            "device",
            Values::Text,
            DefaultValue::Word("auto"),
            "\"cpu\", \"cuda:0\" and so on, or \"auto\": the GPU where there is one.",
        )
        .reads(&[("cpu", "CPU"), ("", "GPU")]),
        Key::size(
            "seed",
            Values::Whole { least: 0, most: u32::MAX as i64 },
            DefaultValue::Whole(super::cell::SEED as i64),
            "Seed of the weights and the data.",
        )
        .role(Role::Repetition)
        .reads(&[("", "seed {}")]),
    ],
);

impl Eval {
    pub const SECTION: Section = Section::new(
        "eval",
        "Quality on held-out text during the run, outside of the measured times; without the section none.",
        &[
            Key::method(
                "every",
                COUNT,
                DefaultValue::Required,
                "Steps between evaluations; one is before the first step and one after the last too.",
            )
            .reads(&[("", "evaluated every {} steps")])
            .without("no evaluation"),
            Key::method(
                "batches",
                COUNT,
                DefaultValue::Whole(8),
                "Batches of `train.batch_size` sequences that an evaluation reads.",
            )
            .reads(&[("", "{} held-out batches")]),
        ],
    );
}

impl Train {
    pub const SECTION: Section = Section::new(
        "train",
        "What one step works on.",
        &[
            Key::size("batch_size", COUNT, DefaultValue::Required, "Sequences of one micro-batch.")
                .times("train.seq_len"),
            Key::size("seq_len", COUNT, DefaultValue::Required, "Tokens per sequence.")
                .called("sequence length"),
            Key::size(
                "accumulation_steps",
                COUNT,
                DefaultValue::Whole(1),
                "Micro-batches whose gradients are summed before an update.",
            ),
            Key::method(
                "clip_norm",
                POSITIVE,
                DefaultValue::Nothing,
                "The norm over all gradients is scaled down to this at most.",
            )
            .without("no clipping"),
            Key::method(
                "sync_each_step",
                Values::Bool,
                DefaultValue::Bool(false),
                "Whether the host reads each step's loss before it goes on, as `loss.item()` does.",
            ),
        ],
    );

    /// Refuses what changes updates where there are none.
    pub(super) fn check(&self) -> Result<(), Rule> {
        let of_updates = [
            ("train.clip_norm", self.clip_norm.is_some()),
            ("train.schedule", self.schedule != Schedule::default()),
        ];
        let has_updates = !matches!(self.optimizer, OptimizerConfig::None(_));
        match of_updates.into_iter().find(|(_, written)| *written && !has_updates) {
            None => Ok(()),
            Some((key, _)) => Err(Rule::new(
                &[key],
                format!("{key} has no effect without an optimizer: there is no update that it could change"),
                format!("remove {key}, or write train.optimizer = {{ kind = \"adamw\", lr = 1e-3 }}"),
            )),
        }
    }

    /// Tokens of one micro-batch.
    pub fn tokens(&self) -> usize {
        self.batch_size * self.seq_len
    }
}

/// `[measure]`: how a cell is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Measure {
    /// Steps run first and left out of the times.
    pub warmup: usize,
    pub length: Length,
    /// The cell must live within this much device memory, as on a smaller card.
    pub memory_limit: Option<Bytes>,
    /// Counts the gradients of one step after the last by their size.
    pub gradient_histogram: bool,
    /// Seconds after which a cell is ended and becomes a `failed` row.
    pub timeout: f64,
}

/// How far the measured training goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Measured steps.
    Steps(usize),
    /// Passes over the samples of `data.sampler`: strategies that need different numbers of steps for
    /// the same samples.
    Epochs(usize),
}

impl Length {
    /// Steps, where the settings alone tell them.
    pub fn steps(self) -> Option<usize> {
        match self {
            Self::Steps(steps) => Some(steps),
            Self::Epochs(_) => None,
        }
    }
}

/// `[measure]` as written: steps or epochs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    #[serde(deserialize_with = "values::count_or_zero")]
    warmup: usize,
    #[serde(deserialize_with = "values::count")]
    steps: Option<usize>,
    #[serde(deserialize_with = "values::count")]
    epochs: Option<usize>,
    memory_limit: Option<Bytes>,
    gradient_histogram: bool,
    #[serde(deserialize_with = "values::positive")]
    timeout: f64,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            warmup: 2,
            steps: None,
            epochs: None,
            memory_limit: None,
            gradient_histogram: false,
            timeout: 3600.0,
        }
    }
}

impl TryFrom<Written> for Measure {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { warmup, steps, epochs, memory_limit, gradient_histogram, timeout } = written;
        let length = match (steps, epochs) {
            (Some(_), Some(_)) => {
                return Err("`steps` and `epochs` both say how long a cell trains; remove one of them".into());
            }
            (None, Some(epochs)) => Length::Epochs(epochs),
            (steps, None) => Length::Steps(steps.unwrap_or(15)),
        };
        Ok(Self { warmup, length, memory_limit, gradient_histogram, timeout })
    }
}

impl From<Measure> for Written {
    fn from(measure: Measure) -> Self {
        let Measure { warmup, length, memory_limit, gradient_histogram, timeout } = measure;
        let (steps, epochs) = match length {
            Length::Steps(steps) => (Some(steps), None),
            Length::Epochs(epochs) => (None, Some(epochs)),
        };
        Self { warmup, steps, epochs, memory_limit, gradient_histogram, timeout }
    }
}

impl Default for Measure {
    fn default() -> Self {
        Self::try_from(Written::default()).expect("neither steps nor epochs are written")
    }
}

impl Measure {
    pub const SECTION: Section = Section::new(
        "measure",
        "How a cell is measured.",
        &[
            Key::method(
                "warmup",
                COUNT_OR_ZERO,
                DefaultValue::Whole(2),
                "Steps that run first and are left out of the times.",
            ),
            Key::method("steps", COUNT, DefaultValue::Whole(15), "Steps that are measured."),
            Key::method(
                "epochs",
                COUNT,
                DefaultValue::Nothing,
                "Instead of steps: passes over the samples of `data.sampler`.",
            ),
            Key::method(
                "memory_limit",
                Values::Bytes,
                DefaultValue::Nothing,
                "Device memory that the cell must live within, as on a smaller card.",
            )
            .reads(&[("", "limit {}")])
            .without("no memory limit"),
            Key::method(
                "gradient_histogram",
                Values::Bool,
                DefaultValue::Bool(false),
                "Whether the gradients of one step after the last are counted by their size.",
            ),
            Key::method(
                "timeout",
                POSITIVE,
                DefaultValue::Number(3600.0),
                "Seconds after which a cell is ended and becomes a `failed` row.",
            ),
        ],
    );
}
