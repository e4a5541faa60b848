//! [`Row`]: everything known about one finished cell, stored as one JSON file.

pub mod ceilings;
pub mod contents;
mod derived;
mod host;
mod verified;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use derived::{Bound, Derived, Floor, LeastCrossing, computations};
pub use verified::Record;

use crate::common::text::{hex, printable};
pub use crate::device::{Ceilings, DeviceInfo};
use crate::keys::Settings;
use crate::measure::{Estimate, Measurement};
use crate::ops::cost::Flops;
use crate::recipe::{Cell, RecipeError};

/// Rises when a field changes its meaning or cells get a key. Rows of older formats are read, those of newer ones are not.
pub const FORMAT: u32 = 7;
/// From this format on a row has operations in a second of whole steps.
const OF_WHOLE_STEPS: u32 = 7;

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Status {
    Ok,
    /// Out of memory: the device's, the host's, or the recipe's `memory_limit`.
    Oom,
    /// Ended with an error, killed, or past its time limit.
    Failed,
    /// The loss became NaN or infinite, or a gradient scaler skipped step after step.
    Diverged,
    /// Not run: it needs other hardware than its machine has. A row of any machine that has it counts in its place.
    Skipped,
}

/// SHA-256 of the files a cell reads, by the dotted key that names them: `"data.corpus" → "ab12…"`.
pub type Inputs = BTreeMap<String, String>;

/// Names a row by what was measured: cell, device and contents of its inputs; the first 16 hex digits of a
/// SHA-256. Which build measured it is provenance, in the row's environment.
pub fn key(cell: &Value, device_name: &str, inputs: &Inputs) -> String {
    // JSON objects are sorted maps, so equal cells give equal text; a list keeps the parts apart.
    let identity = serde_json::to_string(&(cell, device_name, inputs)).expect("plain data");
    hex(&Sha256::digest(identity)[..8])
}

/// Of the file of a row, without its ending: `ab12`, and `ab12-2` of the cell's second process.
pub fn name(key: &str, repeat: usize) -> String {
    if repeat == first() { key.into() } else { format!("{key}-{repeat}") }
}

fn first() -> usize {
    1
}

fn is_first(repeat: &usize) -> bool {
    *repeat == first()
}

/// One finished cell, or one of several processes that measured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub format: u32,
    /// [`key`], of a row that has `inputs`.
    pub key: String,
    /// Which of the cell's processes (`measure.repeats`) it is of, from 1.
    #[serde(skip_serializing_if = "is_first", default = "first")]
    pub repeat: usize,
    /// Seconds of its process; absent in rows of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process_seconds: Option<f64>,
    /// [`Cell::to_json`]: the cell in the recipe's spelling.
    pub cell: Value,
    /// A row that another program wrote may have none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub inputs: Option<Inputs>,
    pub status: Status,
    /// Why the status is not `ok`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// Of a cell that ran to its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measurement: Option<Measurement>,
    pub estimate: Estimate,
    pub flops: Flops,
    /// The host's time for the launches of a step, as a share of the measured step; of cells on a GPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_share: Option<f64>,
    pub environment: Environment,
    /// Absent of a row of an earlier program, until it is read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub derived: Option<Derived>,
}

/// Where and with what a row was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub runner_version: String,
    /// The commit the binary was built from, `-dirty` where the sources had changed since; empty when unknown.
    pub commit: String,
    /// Hash of the sources and the profile the binary was built from.
    pub build: String,
    pub device: DeviceInfo,
    pub ceilings: Ceilings,
    pub operating_system: String,
    /// UTC, RFC 3339, to the second: `2026-11-21T07:30:00Z`.
    pub date: String,
}

impl Row {
    /// Of a cell that reads no files.
    pub fn new(cell: &Cell, environment: &Environment, status: Status, reason: String) -> Self {
        Self {
            format: FORMAT,
            key: key(&cell.to_json(), &environment.device.name, &Inputs::new()),
            repeat: first(),
            process_seconds: None,
            cell: cell.to_json(),
            inputs: Some(Inputs::new()),
            status,
            reason: printable(&reason),
            measurement: None,
            estimate: cell.estimate(),
            flops: cell.flops(),
            host_share: None,
            environment: environment.clone(),
            derived: Some(Derived::new(cell, environment, None)),
        }
    }

    /// Of a cell that reads files with these contents.
    #[must_use]
    pub fn of_inputs(mut self, inputs: Inputs) -> Self {
        self.key = key(&self.cell, &self.environment.device.name, &inputs);
        Self { inputs: Some(inputs), ..self }
    }

    /// Whether it was measured on a CPU.
    pub fn is_on_cpu(&self) -> bool {
        self.environment.device.id == "cpu"
    }

    /// [`name`] of its file.
    pub fn name(&self) -> String {
        name(&self.key, self.repeat)
    }

    /// Of several rows of a cell the one with the highest worth counts: a skipped one least, then the newest.
    pub fn worth(&self) -> (bool, &str) {
        (self.status != Status::Skipped, &self.environment.date)
    }

    /// Whether the row's key is that of its content; true of a row without inputs, which cannot say.
    pub fn is_named_rightly(&self) -> bool {
        let key = |inputs| key(&self.cell, &self.environment.device.name, inputs);
        self.inputs.as_ref().is_none_or(|inputs| self.key == key(inputs))
    }

    /// Of a cell that ran to its end. Where batches differ in size, the estimate becomes that of the largest
    /// one that there was; beforehand only its bounds are known.
    #[must_use]
    pub fn measured(mut self, cell: &Cell, measurement: Measurement) -> Self {
        if let Some([batch_size, seq_len]) = measurement.loading.as_ref().and_then(|l| l.largest_batch) {
            let mut largest = cell.clone();
            (largest.train.batch_size, largest.train.seq_len) = (batch_size, seq_len);
            self.estimate = largest.estimate();
        }
        let host_share = host::host_share(cell, &self.environment.ceilings, &measurement);
        let derived = Some(Derived::new(cell, &self.environment, Some(&measurement)));
        Self { measurement: Some(measurement), host_share, derived, ..self }
    }

    /// The row as this program writes it: keys that came later have their defaults, what changed its meaning is converted, and
    /// derived numbers are there. Its key stays what it was, the name of its file.
    ///
    /// # Errors
    /// When the cell is not one that can be read today.
    pub fn in_this_format(self) -> Result<Self, RecipeError> {
        if self.format == FORMAT && self.derived.is_some() {
            return Ok(self);
        }
        let cell = Cell::from_json(&self.cell)?;
        let of_before = self.format < OF_WHOLE_STEPS;
        let measurement = self.measurement.map(|measurement| match of_before {
            true => measurement.with_rate_of_whole_steps(),
            false => measurement,
        });
        let derived = Some(Derived::new(&cell, &self.environment, measurement.as_ref()));
        Ok(Self { cell: cell.to_json(), format: FORMAT, measurement, derived, ..self })
    }

    /// What its cell could not save after the last step, and why.
    pub fn unsaved(&self) -> &[String] {
        self.measurement.as_ref().map_or(&[], |measurement| &measurement.unsaved)
    }

    /// Seconds of its process without the preparation of the device, which later processes find done.
    pub fn prepared_seconds(&self) -> Option<f64> {
        let prepare = self.measurement.as_ref().and_then(|measurement| measurement.prepare_seconds);
        Some(self.process_seconds? - prepare.unwrap_or(0.0))
    }

    /// Whether there is nothing to try again.
    pub fn ended_well(&self) -> bool {
        self.status == Status::Ok && self.unsaved().is_empty()
    }

    /// Dotted settings of the cell.
    pub fn settings(&self) -> Settings {
        crate::keys::settings(&self.cell)
    }
}

#[cfg(test)]
mod advice_tests;
#[cfg(test)]
mod driver_tests;
#[cfg(test)]
mod estimate_tests;
#[cfg(test)]
mod time_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Load, Loading, Samples};
    use crate::run::testing;

    #[test]
    fn a_row_is_known_by_its_cell_its_device_and_the_contents_of_its_inputs() {
        let cells = testing::recipe().cells;
        let row = Row::new(&cells[0], &testing::environment(), Status::Ok, String::new());
        let of = |text: &str| row.clone().of_inputs(Inputs::from([("data.corpus".into(), text.into())]));
        assert_eq!(row.clone().of_inputs(Inputs::new()), row);
        assert_eq!(of("a").key, of("a").key);
        let key = |cell: &Cell, device: &str| key(&cell.to_json(), device, &Inputs::new());
        let name = testing::device().name;
        let others = [of("a").key, of("b").key, key(&cells[1], &name), key(&cells[0], "another")];
        for (i, other) in others.iter().enumerate() {
            assert!(*other != row.key && !others[..i].contains(other), "{i}");
        }
        let mut rebuilt = testing::environment();
        (rebuilt.commit, rebuilt.build) = ("fedcba987654-dirty".into(), "0123456789ab".into());
        assert_eq!(Row::new(&cells[0], &rebuilt, Status::Ok, String::new()).key, row.key);
        assert!(row.is_named_rightly() && !Row { key: of("a").key, ..row.clone() }.is_named_rightly());
    }

    #[test]
    fn a_row_of_an_earlier_program_gets_derived_numbers() {
        let cell = &testing::recipe().cells[0];
        let row = Row::new(cell, &testing::environment(), Status::Ok, String::new());
        let derived = row.derived.clone().expect("of a new row");
        assert_eq!((derived.trained, derived.parameters), (cell.model.parameters(), cell.model.parameters()));
        assert!(derived.crossing.is_none() && derived.sent.is_none() && derived.schedule.is_none());
        assert_eq!(Row { derived: None, ..row.clone() }.in_this_format().expect("a cell"), row);
    }

    /// Steps of 1 s, of which updates take a quarter: 8 of an older format are 6 of the whole step.
    #[test]
    fn an_older_row_has_the_rate_of_whole_steps_too() {
        let cell = &testing::recipe().cells[0];
        let steps = |seconds: f64| Samples::new(vec![seconds; 3]);
        let measurement = Measurement {
            flops_per_second: 8.0,
            step: steps(1.0),
            optimizer: Some(steps(0.25)),
            ..testing::measurement(1.0)
        };
        let row = Row::new(cell, &testing::environment(), Status::Ok, String::new());
        let of = |format: u32, measurement: Measurement| {
            let row = Row { format, measurement: Some(measurement), ..row.clone() };
            row.in_this_format().expect("a cell").measurement.expect("measured").flops_per_second
        };
        assert_eq!([6, FORMAT].map(|format| of(format, measurement.clone())), [6.0, 8.0]);
        let sampled = Loading::new(3.0, &[Load::default(); 3]);
        assert_eq!(of(6, Measurement { loading: Some(sampled), ..measurement.clone() }), 6.0);
        assert_eq!(of(6, Measurement { optimizer: None, ..measurement }), 8.0);
    }

    #[test]
    fn the_estimate_is_of_the_largest_batch_there_was() {
        let cells = testing::recipe().cells;
        let row = |i: usize| Row::new(&cells[i], &testing::environment(), Status::Ok, String::new());
        let largest_batch = Some([1, cells[2].train.seq_len]);
        let loading = Loading { largest_batch, ..Loading::new(1.0, &[Load::default()]) };
        let measurement = Measurement { loading: Some(loading), ..testing::measurement(1.0) };
        assert_eq!(row(2).measured(&cells[2], measurement).estimate, row(0).estimate);
        let steady = row(2).measured(&cells[2], testing::measurement(1.0)).estimate;
        assert!(steady == row(2).estimate && steady != row(0).estimate);
    }
}
