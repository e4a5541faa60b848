//! [`Row`]: everything that is known about one finished cell, stored as one JSON file.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::{Ceilings, DeviceInfo};
use crate::measure::{Estimate, Measurement};
use crate::model::Flops;
use crate::recipe::{Cell, Settings};

/// Rises when a field changes its meaning; rows of another format are not read.
pub const FORMAT: u32 = 1;

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Out of memory: the device's, the host's, or the recipe's `memory_limit`.
    Oom,
    /// Ended with an error, killed, or past its time limit.
    Failed,
    /// The loss became NaN or infinite, or a gradient scaler skipped step after step.
    Diverged,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Oom => "oom",
            Self::Failed => "failed",
            Self::Diverged => "diverged",
        }
    }
}

/// One finished cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub format: u32,
    /// [`Cell::key`]
    pub key: String,
    /// [`Cell::to_json`]: the cell in the recipe's spelling.
    pub cell: Value,
    pub status: Status,
    /// Why the status is not `ok`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// Of a cell that ran to its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measurement: Option<Measurement>,
    pub estimate: Estimate,
    pub flops: Flops,
    pub environment: Environment,
}

/// Where and with what a row was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub runner_version: String,
    /// The commit the binary was built from; empty when unknown.
    pub commit: String,
    pub device: DeviceInfo,
    pub ceilings: Ceilings,
    pub operating_system: String,
    /// UTC, RFC 3339, to the second: `2026-11-21T07:30:00Z`.
    pub date: String,
}

impl Row {
    pub fn new(cell: &Cell, environment: &Environment, status: Status, reason: String) -> Self {
        Self {
            format: FORMAT,
            key: cell.key(&environment.device.name),
            cell: cell.to_json(),
            status,
            reason,
            measurement: None,
            estimate: cell.model.estimate(cell),
            flops: cell.model.flops(cell),
            environment: environment.clone(),
        }
    }

    /// Of a cell that ran to its end. Where batches differ in size, the estimate becomes that of the largest
    /// one that there was; beforehand only its bounds are known.
    #[must_use]
    pub fn measured(mut self, cell: &Cell, measurement: Measurement) -> Self {
        if let Some([batch_size, seq_len]) = measurement.loading.as_ref().and_then(|l| l.largest_batch) {
            let mut largest = cell.clone();
            (largest.train.batch_size, largest.train.seq_len) = (batch_size, seq_len);
            self.estimate = largest.model.estimate(&largest);
        }
        Self { measurement: Some(measurement), ..self }
    }

    /// Dotted settings of the cell.
    pub fn settings(&self) -> Settings {
        crate::recipe::flatten(&self.cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Load, Loading};
    use crate::run::mock;

    #[test]
    fn the_estimate_is_of_the_largest_batch_there_was() {
        let cells = mock::recipe().cells;
        let row = |i: usize| Row::new(&cells[i], &mock::environment(), Status::Ok, String::new());
        let seq_len = cells[2].train.seq_len;
        let loading = Loading { largest_batch: Some([1, seq_len]), ..Loading::new(1.0, &[Load::default()]) };
        let measurement = Measurement { loading: Some(loading), ..mock::measurement(1.0) };
        assert_eq!(row(2).measured(&cells[2], measurement).estimate, row(0).estimate);
        let steady = row(2).measured(&cells[2], mock::measurement(1.0));
        assert!(steady.estimate == row(2).estimate && steady.estimate != row(0).estimate);
    }
}
