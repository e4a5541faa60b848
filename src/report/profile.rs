//! [`StepProfile`]: where the time of a traced step went, by phase and operator, with the least that each could
//! take; and its longest kernels.

use std::path::Path;

use miette::miette;
use strum::VariantArray;

use super::columns::{KERNELS, PARTS};
use super::document::{Defined, Table};
use super::frame::Frame;
use super::line::Line;
use super::table::Comparison;
use super::terminal::ruled;
use super::timelines::trace;
use crate::device::Ceilings;
use crate::device::trace::{Activity, EXCHANGE, KernelTime, Profile};
use crate::measure::Phase;
use crate::ops::cost::{Work, Works};
use crate::ops::name::OperatorName;
use crate::recipe::{Cell, Recipe};
use crate::row::Row;
use crate::words::{Compute, DeviceId};

/// A line of the table: an operator in a phase, the time in which nothing ran, or the whole step.
pub struct PartTime {
    pub phase: &'static str,
    pub name: String,
    /// Kernels and copies on the device; `None` where nothing is counted.
    pub kernels: Option<usize>,
    pub seconds: f64,
    pub floor: Option<Floor>,
    /// Seconds of the whole step.
    pub step: f64,
}

/// The least time that some work takes on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    pub seconds: f64,
    /// What takes longer.
    pub bound: &'static str,
}

impl Floor {
    /// Operations over the rate of a large product of `rate` operations a second, or bytes over the rate of a large
    /// copy; `None` without such work, or where its rate was not measured.
    fn new(work: Work, rate: Option<f64>, copy: Option<f64>) -> Option<Self> {
        let over = |amount: f64, rate: Option<f64>, bound| {
            (amount > 0.0).then(|| rate.map(|rate| Self { seconds: amount / rate, bound }))
        };
        let both = [over(work.operations, rate, "operations"), over(work.bytes, copy, "bytes")];
        // Where one of two bounds is not known, the floor is not either.
        let known: Option<Vec<Self>> = both.into_iter().flatten().collect();
        known?.into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
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
    /// From the trace of a row of `cell`; `None` when nothing ran.
    pub fn new(cell: &Cell, row: &Row, activities: &[Activity]) -> Option<Self> {
        let Profile { span, parts, idle, kernels } = Profile::new(activities)?;
        let step = seconds(span);
        // A device that the recipe leaves open is that of the row.
        let mut cell = cell.clone();
        cell.device.clone_from(&row.environment.device.id);
        let on_cpu = cell.device_id() == DeviceId::Cpu;
        // Batches of a sampler differ in size, and which one was traced is not known.
        let alike = row.measurement.as_ref().is_none_or(|m| m.loading.is_none());
        let works = alike.then(|| cell.works());
        let floors = Floors { works, compute: cell.precision.compute, ceilings: row.environment.ceilings };
        let mut lines = Vec::new();
        for (phase, time) in idle {
            lines.extend(parts.iter().filter(|part| part.phase == phase).map(|part| PartTime {
                phase: name(phase),
                name: part.operator.clone().unwrap_or_else(|| "other kernels".into()),
                kernels: Some(part.kernels),
                seconds: seconds(part.time),
                floor: part.operator.as_deref().zip(phase).and_then(|(name, phase)| floors.of(name, phase)),
                step,
            }));
            lines.push(PartTime {
                phase: name(phase),
                name: if on_cpu { "outside of operators" } else { "idle" }.into(),
                kernels: None,
                seconds: seconds(time),
                floor: None,
                step,
            });
        }
        lines.push(PartTime {
            phase: "step",
            name: "all".into(),
            kernels: Some(parts.iter().map(|part| part.kernels).sum()),
            seconds: step,
            floor: floors.of_step(),
            step,
        });
        let kernels = kernels.into_iter().map(|kernel| (kernel, step)).collect();
        Some(Self { parts: lines, kernels, on_cpu, graph: cell.train.graph })
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
            let bound = part.floor.map_or("–", |floor| floor.bound);
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

/// The floors of a cell's operators on its row's device.
struct Floors {
    /// `None` where the work is not known.
    works: Option<Works>,
    compute: Compute,
    ceilings: Ceilings,
}

impl Floors {
    fn of(&self, operator: &str, phase: Phase) -> Option<Floor> {
        let name = OperatorName::VARIANTS.iter().find(|name| name.into_str() == operator)?;
        let work = self.works.as_ref()?[*name].of(phase);
        Floor::new(work, self.ceilings.matmul(self.compute), self.ceilings.copy)
    }

    /// The sum over all operators and phases.
    fn of_step(&self) -> Option<Floor> {
        let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        let names = OperatorName::VARIANTS.iter().map(|name| name.into_str());
        let all = names.flat_map(|name| phases.map(|phase| self.of(name, phase))).flatten();
        let seconds: f64 = all.map(|floor| floor.seconds).sum();
        (seconds > 0.0).then_some(Floor { seconds, bound: "–" })
    }
}

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
    let profile = StepProfile::new(line.cell, row, &activities.map_err(&damaged)?)
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
