//! [`StepProfile`]: where the time of a traced step went, by phase and operator, with the least that each could
//! take; and its longest kernels.

use std::path::Path;

use miette::miette;

use super::columns::{KERNELS, PARTS};
use super::document::{Defined, Table};
use super::frame::Frame;
use super::line::Line;
use super::table::Comparison;
use super::terminal::ruled;
use super::timelines::trace;
use crate::measure::Phase;
use crate::measure::trace::{Activity, EXCHANGE, KernelTime, Profile};
use crate::recipe::Recipe;
use crate::row::{Bound, Derived, Floor, Row};

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
        lines.push(PartTime {
            phase: "step",
            name: "all".into(),
            kernels: Some(parts.iter().map(|part| part.kernels).sum()),
            seconds: step,
            floor: derived.and_then(Derived::floor_of_step),
            bound: None,
            step,
        });
        let kernels = kernels.into_iter().map(|kernel| (kernel, step)).collect();
        let graph = row.cell.pointer("/train/graph") == Some(&true.into());
        Some(Self { parts: lines, kernels, on_cpu, graph })
    }

    /// Seconds of the kernels of the update; 0 on a CPU.
    pub fn of_update(&self) -> f64 {
        let phase = name(Some(Phase::Optimizer));
        let of_kernels = |part: &&PartTime| part.kernels.is_some() && part.name != EXCHANGE && !self.on_cpu;
        let parts = self.parts.iter().filter(|part| part.phase == phase).filter(of_kernels);
        parts.map(|part| part.seconds).sum()
    }

    /// The table of the operators; `name`: what the cell is called.
    pub fn table(&self, name: &str) -> Table {
        let mut frame = Frame::default();
        frame.add("", PARTS, self.parts.len(), |i| Some(&self.parts[i]));
        let rows = self.parts.iter().enumerate().map(|(i, part)| {
            let mut texts = vec![("phase", part.phase.into()), ("operator", part.name.clone())];
            let bound = part.bound.map_or("–", |bound| bound.into_str());
            texts.extend(
                self.parts.iter().any(|part| part.floor.is_some()).then(|| ("bound by", bound.into())),
            );
            (texts, i)
        });
        let Defined { caption, columns, .. } = Defined::named("operators");
        let exchanges = self.parts.iter().any(|part| part.name == EXCHANGE);
        let beside = if exchanges { BESIDE } else { "" };
        let launched = if self.graph { LAUNCHED } else { "" };
        Table::new(&format!("{name}: {caption}{launched}{beside}"), rows, &frame, columns)
            .expect("a step has a line")
    }

    /// The `top` kernels that took longest; `None` on the CPU, which records operators, not kernels.
    pub fn top_kernels(&self, top: usize) -> Option<Table> {
        let mut frame = Frame::default();
        frame.add("", KERNELS, self.kernels.len(), |i| Some(&self.kernels[i]));
        let rows = self.kernels.iter().enumerate().take(top).map(|(i, (kernel, _))| {
            let operator = kernel.operator.clone().unwrap_or_else(|| "–".into());
            (
                vec![
                    ("kernel", kernel.name.clone()),
                    ("operator", operator),
                    ("phase", name(kernel.phase).into()),
                ],
                i,
            )
        });
        let Defined { caption, columns, .. } = Defined::named("kernels");
        if self.on_cpu { None } else { Table::new(caption, rows, &frame, columns) }
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
    let listed = traced.iter().map(list).collect::<Vec<_>>().join("\n");
    // Where the recipe lies is known to nobody here.
    let again =
        format!("`runner run` of its recipe, {}.toml, with --trace --force records one", recipe.name());
    let found: Vec<_> =
        traced.into_iter().filter(|(_, row, _)| key.is_none_or(|key| row.key == key)).collect();
    let (line, row, activities) = match (found.len(), key) {
        (1, _) => found.into_iter().next().expect("there is one"),
        (0, None) => return Err(miette!(help = again, "no cell of {} was traced", folder.display())),
        (0, Some(key)) if all.iter().any(|(_, row)| row.key == key) => {
            return Err(miette!(help = again, "the row {key} has no trace"));
        }
        (0, Some(key)) => {
            return Err(miette!(
                help = if listed.is_empty() { again } else { format!("these were traced:\n{listed}") },
                "no cell of {} has {key} as its newest row",
                folder.display()
            ));
        }
        (n, _) => {
            return Err(miette!(
                help = listed,
                "{n} cells of {0} were traced: name the row of one, {0}/rows/<key>.json",
                folder.display()
            ));
        }
    };
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
