//! [`Line`]: one cell of the recipe, with its rows.

use std::sync::Arc;

use itertools::Itertools;

use crate::keys::Settings;
use crate::measure::Measurement;
use crate::measure::trace::Summary;
use crate::recipe::{Cell, Published};
use crate::row::{Ceilings, Derived, Row, Status};

/// One cell of the recipe.
pub struct Line<'a> {
    pub cell: &'a Cell,
    pub settings: Arc<Settings>,
    /// Index into [`shapes`](super::table::Comparison::shapes).
    pub shape: usize,
    /// Index into [`methods`](super::table::Comparison::methods).
    pub method: usize,
    /// Of the cell's first process that ended well, else of its first; absent while the cell has not run.
    pub row: Option<&'a Row>,
    /// Of each of its processes.
    pub rows: Vec<&'a Row>,
    /// Index of the line that this one is compared with; may be its own.
    pub baseline: Option<usize>,
    /// Whether its size has several baselines, of which this one is not the first but the one most like the line.
    pub nearest: bool,
    pub published: Option<&'a Published>,
    /// Of its device: the highest rates that a row of it has.
    pub ceilings: Ceilings,
    /// Of its traced step; none before the traces are read.
    pub trace: Option<Arc<Summary>>,
}

impl<'a> Line<'a> {
    /// A setting of the cell that is a word; empty where it has none.
    pub fn setting(&self, key: &str) -> &str {
        self.settings.get(key).and_then(|value| value.as_str()).unwrap_or_default()
    }

    /// What was measured, of a cell that ran to its end.
    pub fn measured(&self) -> Option<&'a Measurement> {
        self.row.and_then(of_its_end)
    }

    /// What each of its processes measured.
    pub fn measurements(&self) -> impl Iterator<Item = &'a Measurement> {
        self.rows.iter().copied().filter_map(of_its_end)
    }

    /// The row of the process with the median step.
    pub fn typical_row(&self) -> Option<&'a Row> {
        let step = |row: &&Row| of_its_end(row).map(|measured| measured.step.median);
        let timed = self.rows.iter().filter_map(|row| Some((step(row)?, *row)));
        let by_step = timed.sorted_by(|a, b| a.0.total_cmp(&b.0)).collect_vec();
        by_step.get(by_step.len().saturating_sub(1) / 2).map(|(_, row)| *row)
    }

    /// What the process with the median step measured.
    pub fn typical(&self) -> Option<&'a Measurement> {
        self.typical_row().and_then(of_its_end)
    }

    /// What follows from the cell by the engine's formulas.
    pub fn derived(&self) -> Option<&'a Derived> {
        self.row?.derived.as_ref()
    }

    /// The share of the measured step that its kernels take; `None` without a trace, and where batches differ in size, so that
    /// the traced one may be another.
    pub fn busy(&self) -> Option<f64> {
        let share = self.trace.as_ref()?.kernel_seconds() / self.measured()?.step.median;
        (!self.cell.data.sampler().varies()).then_some(share.min(1.0))
    }

    /// The line as if this row were its only one.
    pub fn of_process(&self, row: &'a Row) -> Self {
        let (settings, trace) = (Arc::clone(&self.settings), self.trace.clone());
        Self { row: Some(row), rows: vec![row], settings, trace, ..*self }
    }

    /// How it ended; of a cell whose processes ended differently, how many of them ended well.
    pub fn status(&self) -> String {
        let Some(row) = self.row else { return "not run".into() };
        match self.measurements().count() {
            n if n > 0 && n < self.rows.len() => format!("ok in {n} of {}", self.rows.len()),
            _ => row.status.to_string(),
        }
    }

    /// Why it has no numbers.
    pub fn reason(&self) -> &'a str {
        match self.row {
            None => "it has not run yet; the same command runs it",
            Some(row) if row.reason.is_empty() => "no reason was recorded",
            Some(row) => &row.reason,
        }
    }

    /// The share of the update on the host that backward hid, and the most that it could have hidden:
    /// 1 − optimizer / update and min(1, backward of the last micro-batch / update), of medians. What is left of a step after
    /// backward counts as the update's, copies included. Nothing can be hidden where updates wait for the norm of
    /// all gradients.
    pub fn hidden_update(&self) -> Option<(f64, f64)> {
        let Measurement { host_update, optimizer, backward, .. } = self.measured()?;
        let (update, exposed) = (host_update.as_ref()?.median, optimizer.as_ref()?.median);
        let train = &self.cell.train;
        let waits = self.cell.awaits_norm();
        // Blocks are updated when their gradients are whole.
        let last = backward.as_ref()?.median / train.accumulation_steps as f64;
        let most = if waits { 0.0 } else { (last / update).min(1.0) };
        let hidden = (1.0 - exposed / update).max(0.0);
        // Micro-batches are not all as long as their mean.
        Some((hidden, if waits { most } else { most.max(hidden) }))
    }

    /// Estimated bytes at the cell's highest moment; of a cell that has not run, by its settings.
    pub fn estimate(&self) -> u64 {
        self.row.map_or_else(|| self.cell.estimate(), |row| row.estimate).total()
    }
}

fn of_its_end(row: &Row) -> Option<&Measurement> {
    row.measurement.as_ref().filter(|_| row.status == Status::Ok)
}
