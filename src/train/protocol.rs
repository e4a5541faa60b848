//! What a cell's process and the runner say to each other.
//!
//! The runner starts `runner cell`, writes one [`Request`] as a line of JSON to its standard input
//! and keeps that pipe open: when it closes, the runner is gone and the cell ends itself. The cell
//! answers with [`Event`]s, one line of JSON each, on standard output. A cell of several ranks is a process for each: the
//! first tells how far it is, and every one how it ended.

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
    /// Bytes of device memory the cell may hold: the recipe's limit, else what the device has.
    pub memory_limit: u64,
    /// Where the first rank writes a trace of one more step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<PathBuf>,
    /// The place among the ranks of the cell; of a cell with one, none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seat: Option<Seat>,
}

/// What a cell reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The device compiles kernels and tunes matrix products before the first step; so many are tuned.
    Preparing { tuned: usize },
    /// Step `done` of `of` has ended; warm-up counts.
    Step { done: usize, of: usize },
    /// All steps ended.
    Done { measurement: Box<Measurement> },
    /// A loss was not finite, or every step was skipped.
    Diverged { reason: String },
    /// The device's memory, or the limit on it, was used up.
    OutOfMemory { reason: String },
    /// The cell panicked or could not be built.
    Failed { reason: String },
    /// Another rank is gone or silent, and this one cannot go on. That one's error, or how it ended, says why.
    Lost { peer: usize, reason: String },
}
