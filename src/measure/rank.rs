//! [`RankRecord`]: the measurements of one rank of a cell in several processes; [`Span`]: what a rank did and when, and
//! [`StageTime`]: the time that a stage takes by itself.

use serde::{Deserialize, Serialize};

use super::MemoryUse;

/// One rank. Seconds and bytes are means over the measured steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    pub rank: usize,
    pub memory: MemoryUse,
    /// Seconds of forward, backward and update.
    pub step_seconds: f64,
    /// Bytes that it sent to other ranks.
    pub sent_bytes: f64,
    /// Seconds in which it exchanged something with others or waited for them.
    pub exchange_seconds: f64,
    /// Seconds of these that its computation did not hide.
    pub exposed_seconds: f64,
    /// Of a pipeline: its stages, and what it did in the last measured step.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageTime>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeline: Vec<Span>,
}

/// The memory of the rank whose peak is the highest; `None` without ranks.
pub fn largest_memory(ranks: &[RankRecord]) -> Option<MemoryUse> {
    ranks.iter().map(|rank| rank.memory).max_by_key(|memory| memory.live_peak)
}

/// Something that a rank did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// `2F0`: forward of stage 2 for micro-batch 0; `2B0`: backward; `U`: update.
    pub action: String,
    /// Seconds since the first rank began its step.
    pub start: f64,
    pub end: f64,
}

/// Seconds of a stage for one micro-batch, measured while all other ranks waited; backward adds its gradients up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    pub stage: usize,
    pub forward: f64,
    pub backward: f64,
}
