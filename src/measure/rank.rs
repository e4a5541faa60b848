//! [`RankRecord`]: what one rank of a cell in several processes came to.

use serde::{Deserialize, Serialize};

use super::{MemoryUse, Span, StageTime};

/// Of one rank. Seconds and bytes are means over the measured steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    pub rank: usize,
    pub memory: MemoryUse,
    /// Seconds of forward, backward and update.
    pub step_seconds: f64,
    /// Bytes that it sent to other ranks.
    pub sent_bytes: f64,
    /// Seconds in which it exchanged something with others or waited for them.
    pub exchange_seconds: f64,
    /// Seconds of these that were not behind its computation.
    pub exposed_seconds: f64,
    /// Of a pipeline: its stages, and what it did in the last measured step.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageTime>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeline: Vec<Span>,
}
