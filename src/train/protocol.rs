//! The protocol between the runner and the process of a cell.
//!
//! The runner starts `runner cell`, writes one [`Request`] as a line of JSON to its standard input and keeps that pipe
//! open: when it closes, the runner is gone and the cell ends itself. The cell answers with [`Event`]s, one line of JSON
//! each, on standard output. A cell of several ranks has a process for each: the first reports progress, and every one how
//! it ended.

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
    /// Which rank this is, and how it meets the others.
    pub seat: Seat,
}

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
    /// Another rank is gone or does not answer, so this one cannot go on. The error of that rank, or the way it ended, has the
    /// cause.
    Lost { peer: usize, reason: String },
    /// The cell goes on.
    #[serde(untagged)]
    Advance(Advance),
}

/// How far a running cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Advance {
    /// The device compiles kernels and tunes matrix products before the first step; `tuned` products so far.
    Preparing { tuned: usize },
    /// Step `done` of `of` has ended; warm-up counts.
    Step { done: usize, of: usize },
}
