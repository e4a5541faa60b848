//! [`StepProfile`]: where the time of a traced step went, by phase and operator, with the least that each could
//! take; and its longest kernels.

use std::path::Path;

use miette::miette;

use super::columns::{KERNELS, PARTS};
use super::document::Defined;
use super::prelude::*;
use super::terminal::ruled;
use super::timelines::trace;
use crate::measure::Phase;
use crate::measure::trace::{Activity, EXCHANGE, KernelTime, Profile};
use crate::recipe::Recipe;
use crate::row::{Bound, Derived, Floor};

/// A line of the table: an operator in a phase, the time in which nothing ran, or the whole step.
pub struct PartTime {
    pub phase: &'static str,
    pub name: String,
    /// Kernels and copies on the device; `None` where nothing is counted.
    pub kernels: Option<usize>,
    pub seconds: f64,
    /// The least seconds that it can take, and of an operator what bounds them.
    pub floor: Option<f64>,
    pub bound: Option<Bound>,
    /// Seconds of the whole step.
    pub step: f64,
}

/// One traced step of a cell.
pub struct StepProfile {
    parts: Vec<PartTime>,
    kernels: Vec<(KernelTime, f64)>,
    on_cpu: bool,
    /// Whether the measured steps were graphs.
    graph: bool,
}

impl StepProfile {
    /// From the trace of a row; `None` when nothing ran.
    pub fn new(row: &Row, activities: &[Activity]) -> Option<Self> {
        let Profile { span, parts, idle, kernels } = Profile::new(activities)?;
        let (step, on_cpu) = (seconds(span), row.is_on_cpu());
        let derived = row.derived.as_ref();
        let line = |phase, name: &str, kernels, time, floor: Option<Floor>| PartTime {
            phase: self::name(phase),
            name: name.into(),
            kernels,
            seconds: seconds(time),
            floor: floor.map(|floor| floor.seconds),
            bound: floor.map(|floor| floor.bound),
            step,
        };
        let mut lines = Vec::new();
        for (phase, time) in idle {
            lines.extend(parts.iter().filter(|part| part.phase == phase).map(|part| {
                let operator = part.operator.as_deref();
                let floor = operator.zip(phase).and_then(|(name, phase)| derived?.floor(name, phase));
                line(phase, operator.unwrap_or("other kernels"), Some(part.kernels), part.time, floor)
            }));
            lines.push(line(phase, if on_cpu { "outside of operators" } else { "idle" }, None, time, None));
        }
        let count = parts.iter().map(|part| part.kernels).sum();
        let floor = derived.and_then(Derived::floor_of_step);
        lines.push(PartTime { floor, ..line(None, "all", Some(count), span, None) });
        let kernels = kernels.into_iter().map(|kernel| (kernel, step)).collect();
        let graph = row.cell.pointer("/train/graph") == Some(&true.into());
        Some(Self { parts: lines, kernels, on_cpu, graph })
    }

    /// The table of the operators; `name`: what the cell is called.
    pub fn table(&self, name: &str) -> Table {
        let floors = self.parts.iter().any(|part| part.floor.is_some());
        let rows = self.parts.iter().map(|part| {
            let bound = part.bound.map_or("–", |bound| bound.into_str());
            let texts = [("phase", part.phase.into()), ("operator", part.name.clone())];
            (texts.into_iter().chain(floors.then(|| ("bound by", bound.into()))).collect(), part)
        });
        let exchanges = self.parts.iter().any(|part| part.name == EXCHANGE);
        let beside = if exchanges { BESIDE } else { "" };
        let launched = if self.graph { LAUNCHED } else { "" };
        let caption = format!("{name}: {}{launched}{beside}", Defined::named("operators").caption);
        Table::of_rows(&caption, PARTS, rows).expect("a step has a line")
    }

    /// The `top` kernels that took longest; `None` on the CPU, which records operators, not kernels.
    pub fn top_kernels(&self, top: usize) -> Option<Table> {
        let rows = self.kernels.iter().take(top).map(|row| {
            let kernel = &row.0;
            let operator = kernel.operator.clone().unwrap_or_else(|| "–".into());
            let phase = name(kernel.phase).into();
            (vec![("kernel", kernel.name.clone()), ("operator", operator), ("phase", phase)], row)
        });
        (!self.on_cpu).then(|| Table::of_rows(&Defined::named("kernels").caption, KERNELS, rows)).flatten()
    }
}

/// Of a cell with `train.graph`, whose graph is gone after its measured steps.
pub const LAUNCHED: &str = " The traced step was launched kernel by kernel, not as a graph.";

/// Of a cell with ranks.
const BESIDE: &str =
    " Exchange between ranks runs next to kernels that compute; while only it runs, the device is idle.";

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

fn name(phase: Option<Phase>) -> &'static str {
    phase.map_or("step", |phase| phase.into_str())
}

/// The profile of a traced cell of a results folder as text, with `top` kernels: of the row with this key, or of the only
/// traced one.
///
/// # Errors
/// When no row or several rows match, with a list of the traced ones, or when the trace cannot be read.
pub fn profile(
    folder: &Path,
    recipe: &Recipe,
    rows: &[Row],
    key: Option<&str>,
    top: usize,
) -> miette::Result<String> {
    let comparison = Comparison::new(recipe, rows);
    let all: Vec<(&Line, &Row)> =
        comparison.lines.iter().filter_map(|line| Some((line, line.row?))).collect();
    // A trace is of a cell's first process.
    let measured = all.iter().filter(|(_, row)| row.measurement.is_some() && row.repeat == 1);
    let traced: Vec<_> =
        measured.filter_map(|(line, row)| Some((*line, *row, trace(folder, &row.key)?))).collect();
    let list = |(line, row, _): &(&Line, &Row, _)| format!("{}: {}", row.key, comparison.title(line));
    let listed = traced.iter().map(list).join("\n");
    // Where the recipe lies is known to nobody here.
    let again =
        format!("`runner run` of its recipe, {}.toml, with --trace --force records one", recipe.name());
    let (folder, count) = (folder.display(), traced.len());
    let found = traced.into_iter().filter(|(_, row, _)| key.is_none_or(|key| row.key == key)).exactly_one();
    let (line, row, activities) = found.map_err(|_| match key {
        Some(key) if all.iter().any(|(_, row)| row.key == key) => {
            miette!(help = again.clone(), "the row {key} has no trace")
        }
        Some(key) if count > 0 => {
            miette!(
                help = format!("these were traced:\n{listed}"),
                "no cell of {folder} has {key} as its newest row"
            )
        }
        None if count > 0 => miette!(
            help = listed,
            "{count} cells of {folder} were traced: name the row of one, {folder}/rows/<key>.json"
        ),
        _ => miette!(help = again.clone(), "no cell of {folder} was traced"),
    })?;
    let damaged =
        |why: String| miette!(help = again.clone(), "the trace of {} cannot be used: {why}", row.key);
    let profile = StepProfile::new(row, &activities.map_err(&damaged)?)
        .ok_or_else(|| damaged("nothing ran in it".into()))?;
    let table = profile.table(&comparison.title(line));
    let mut out = format!("{}\n\n{}\n", table.caption, ruled(&table));
    if let Some(kernels) = profile.top_kernels(top) {
        out += &format!("\n{}\n\n{}\n", kernels.caption, ruled(&kernels));
    }
    Ok(out)
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
