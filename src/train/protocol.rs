//! The protocol between the runner and the process of a cell.
//!
//! The runner starts `runner cell`, writes one [`Request`] as a line of JSON to its standard input and keeps that pipe
//! open: when it closes, the runner is gone and the cell ends itself. A line [`STOP`] asks the cell to save its state and
//! end. The cell answers with [`Event`]s, one line of JSON each, on standard output. A cell of several ranks has a process
//! for each: the first reports progress, every one its part of a logged loss, and every one how it ended.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::measure::Measurement;
use crate::world::Seat;

/// One cell to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`crate::recipe::Cell::to_json`]
    pub cell: Value,
    /// Bytes of device memory that the process may hold: the recipe's limit, or else what the device has.
    pub memory_limit: u64,
    /// File for the trace of one more step, which the first rank writes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<PathBuf>,
    /// Whether the cell is logged (`[log]`).
    #[serde(default)]
    pub logged: bool,
    /// Which rank this is, and how it meets the others.
    pub seat: Seat,
}

/// The line that asks a cell to save its state and end.
pub const STOP: &str = "stop";

/// What a cell reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// All steps have ended.
    Done { measurement: Box<Measurement> },
    /// A loss was not finite, or every step was skipped.
    Diverged { reason: String },
    /// The device's memory, or the limit on it, was used up.
    OutOfMemory { reason: String },
    /// The cell could not be built, or the program has a fault.
    Failed { reason: String },
    /// The cell was asked to stop, and has saved its state after so many steps.
    Stopped { step: usize },
    /// Another rank is gone or does not answer, so this one cannot go on. The error of that rank, or the way it ended, has the
    /// cause.
    Lost { peer: usize, reason: String },
    /// The cell goes on.
    #[serde(untagged)]
    Advance(Advance),
}

/// How far a running cell is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Advance {
    /// The device compiles kernels and tunes matrix products before the first step; `tuned` products so far.
    Preparing { tuned: usize },
    /// Step `done` of `of` has ended; warm-up counts. `record`: the newest step whose loss is known.
    Step {
        done: usize,
        of: usize,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        record: Option<StepRecord>,
    },
}

/// A step of training, for who follows the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// From 1, as losses of a row are counted: without a warm-up that trains a network of its own.
    pub step: usize,
    /// Nats per token. Of a cell of several ranks the sum of their parts; a process reports its own.
    pub loss: f64,
    /// `None` without an optimizer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub learning_rate: Option<f64>,
    /// Norm over all gradients before they are clipped; `None` where the update does not need it, or it is not finite.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gradient_norm: Option<f64>,
    /// Tokens of all ranks, without padding.
    pub tokens: u64,
    /// Seconds from the end of the step before, by the host's clock, without evaluations and saving; `None` of a warm-up step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds: Option<f64>,
    /// Peak of live tensors so far, as the row's `live_peak`.
    pub memory_bytes: u64,
}

impl StepRecord {
    pub fn tokens_per_second(&self) -> Option<f64> {
        self.seconds.filter(|seconds| *seconds > 0.0).map(|seconds| self.tokens as f64 / seconds)
    }
}
