//! Plans next to their measurements.

use std::collections::BTreeMap;

use itertools::Itertools;

use crate::advise::Plan;
use crate::row::Row;
use crate::words::Bytes;
use crate::words::text::{few, ratio, seconds, table};

/// A plan with the row of its cell.
pub struct Compared {
    /// Its number, and what else distinguishes it from the others.
    pub names: Vec<String>,
    pub plan: Plan,
    pub row: Option<Row>,
}

impl Compared {
    /// The median step of a row that ended well.
    pub fn step(&self) -> Option<f64> {
        Some(self.row.as_ref()?.measurement.as_ref()?.step.median)
    }

    /// Predicted over measured.
    pub fn of_step(&self) -> Option<f64> {
        Some(self.plan.seconds()? / self.step()?)
    }

    /// Estimated over measured.
    pub fn of_memory(&self) -> Option<f64> {
        self.peak().map(|peak| self.plan.estimate.total() as f64 / peak as f64)
    }

    fn peak(&self) -> Option<u64> {
        Some(self.row.as_ref()?.measurement.as_ref()?.memory.live_peak)
    }

    fn line(&self) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let mut line = self.names.clone();
        line.extend([
            or_none(self.plan.seconds().map(seconds)),
            or_none(self.step().map(seconds)),
            or_none(self.of_step().map(ratio)),
            Bytes(self.plan.estimate.total()).to_string(),
            or_none(self.peak().map(|peak| Bytes(peak).to_string())),
            or_none(self.of_memory().map(ratio)),
            self.row.as_ref().map_or("no row".into(), |row| row.status.to_string()),
        ]);
        line
    }
}

/// A line for each plan, and below why some have no numbers; `names`: the header of [`Compared::names`].
pub fn lines(names: &[&str], all: &[Compared]) -> String {
    let header = ["step, predicted", "measured", "ratio", "memory, estimated", "measured", "ratio", "status"];
    let table = table(&[names, &header].concat(), all.iter().map(Compared::line).collect(), names.len());
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (compared, row) in all.iter().filter_map(|compared| Some((compared, compared.row.as_ref()?))) {
        if !row.reason.is_empty() {
            reasons.entry(&row.reason).or_default().push(&compared.names[0]);
        }
    }
    let reasons = reasons.into_iter().map(|(reason, numbers)| format!("{}: {reason}", few(numbers, 12)));
    std::iter::once(table).chain(reasons).join("\n")
}

/// The one that took the least time.
pub fn fastest<'c>(all: impl IntoIterator<Item = &'c Compared>) -> Option<&'c Compared> {
    let timed = all.into_iter().filter_map(|compared| Some((compared.step()?, compared)));
    timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, compared)| compared)
}
