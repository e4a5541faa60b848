//! [`Crossing`]: the copies over the bus during a phase of a step: bytes, time, and how much of it was hidden behind
//! computation, by the device's own clock.

use serde::{Deserialize, Serialize};

use super::Phase;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Direction {
    #[strum(serialize = "to the device")]
    ToDevice,
    #[strum(serialize = "to the host")]
    ToHost,
}

/// The copies in one direction that began during one phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crossing {
    pub phase: Phase,
    pub direction: Direction,
    pub copies: usize,
    pub bytes: u64,
    /// Seconds during which at least one of them ran.
    pub copy_seconds: f64,
    /// Those of them during which a kernel ran too.
    pub hidden_seconds: f64,
    /// Seconds during which a kernel ran in the turns of blocks; of a phase without turns, in all of it.
    pub compute_seconds: f64,
}

impl Crossing {
    /// Bytes per second while copies ran.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.copy_seconds
    }

    /// The hidden share of the time of the copies.
    pub fn hidden_share(&self) -> f64 {
        self.hidden_seconds / self.copy_seconds
    }

    /// The largest share that can be hidden: no more than there is computation, and of n copies one comes before or after
    /// all computation: min((n-1)/n, compute/copy). Kernels outside of the turns of blocks may hide more, and what is hidden
    /// could be.
    pub fn ceiling(&self) -> f64 {
        let all_but_one = (self.copies as f64 - 1.0) / self.copies as f64;
        all_but_one.min(self.compute_seconds / self.copy_seconds).max(self.hidden_share())
    }
}
