//! [`Span`]: what a rank did, from when to when, and [`StageTime`]: what its stages take by themselves.

use serde::{Deserialize, Serialize};

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
