//! How the rows were measured: device, versions, dates, method and limits, as sentences.

use std::collections::{BTreeMap, BTreeSet};

use itertools::Itertools;
use polars::prelude::ChunkQuantile;

use super::ceilings;
use super::line::Line;
use super::table::Comparison;
use crate::device::DeviceInfo;
use crate::row::{Environment, Row, Status};
use crate::verify::Record;
use crate::words::Bytes;
use crate::words::text::{and, counted, percent};

/// A step of which kernels take less than this share waits for its host.
const BUSY: f64 = 0.75;
/// Below this share of its rate of matrix products a GPU waits for its host more than it computes.
const WAITING: f64 = 0.1;

/// Where, when and how the rows were measured; several values where rows differ.
pub fn items(comparison: &Comparison) -> Vec<String> {
    let rows: Vec<&Row> =
        comparison.lines.iter().filter_map(|line| line.row).filter(|row| ran(row)).collect();
    let all = of_processes(comparison);
    let of_rows = |of: fn(&Environment) -> String| distinct(all.iter().map(|row| of(&row.environment)));
    let mut items = Vec::new();
    let dates: BTreeSet<&str> = all.iter().map(|row| row.environment.date.as_str()).collect();
    if let (Some(first), Some(last)) = (dates.first(), dates.last()) {
        items.push(format!("Device: {}", of_rows(|e| device(&e.device))));
        items.extend(ceilings::sentences(all.iter().map(|row| &row.environment)));
        items.extend([
            format!("Operating system: {}", of_rows(|e| e.operating_system.clone())),
            format!("runner {}", of_rows(build)),
            format!("Measured {first}{}", if first == last { String::new() } else { format!(" to {last}") }),
        ]);
        items.extend(paths(&all));
        items.extend(verified(&comparison.verified, &all));
        items.extend(gradient_norms(comparison));
    }
    let measured = || comparison.lines.iter().map(|line| &line.cell.measure);
    let steps = measured().filter(|of| of.epochs.is_none()).map(|of| of.steps.unwrap_or_default());
    let of_epochs = distinct(measured().filter_map(|of| of.epochs).map(|epochs| match epochs {
        1 => "one epoch of the samples, all of it measured".into(),
        epochs => format!("{epochs} epochs of the samples, all of them measured"),
    }));
    items.extend([
        format!(
            "Each cell ran in a process of its own: {}, left out of the times, then {}.",
            all_counted(comparison.lines.iter().map(|line| line.cell.measure.warmup), "warm-up step"),
            and([all_counted(steps, "measured step"), of_epochs].into_iter().filter(|text| !text.is_empty()))
        ),
        format!(
            "{} A time is the median of the measured steps; of a cell with several processes, the median of theirs.",
            match comparison.lines.iter().any(|line| line.cell.train.mode.trains()) {
                true => {
                    "Forward (batch to loss), backward (loss to gradients) and the optimizer's update are timed separately."
                }
                false => "A step is a forward (batch to loss).",
            }
        ),
        match rows.iter().any(|row| !row.is_on_cpu()) {
            false => "Peak memory is the most bytes live at any moment of any step, above what the process held \
                      before the network was built; every allocation is counted, so it is exact and excludes \
                      what an allocator holds in reserve."
                .into(),
            true => "Peak memory is the most device memory in tensors at any moment of the warm-up steps, above \
                     what was held before the network was built, as CubeCL reports it before every launch. Times \
                     are those of device events in the measured steps, in which the host does not wait. The \
                     table's files also have what the pools reserved and what the driver counted."
                .into(),
        },
    ]);
    items.extend(rows.iter().any(|row| row.measurement.is_some()).then(|| RATES.into()));
    items.extend(resumed(&rows));
    items.extend(unsaved(&rows));
    if comparison.with_samplers() {
        items.push(
            "With a sampler, warm-up trains a separate network on the largest batch, so that the measured steps \
             see every sample of an epoch for the first time. On a GPU the matrix products of the largest batch are \
             tuned; for those of other lengths cuBLASLt chooses."
                .into(),
        );
    }
    items
}

/// The rows of every process that ran.
fn of_processes<'r>(comparison: &Comparison<'r>) -> Vec<&'r Row> {
    comparison.lines.iter().flat_map(|line| line.rows.iter().copied()).filter(|row| ran(row)).collect()
}

/// Whether its machine had what the cell needs.
fn ran(row: &Row) -> bool {
    row.status != Status::Skipped
}

/// The limits of what the numbers show.
pub fn limits(comparison: &Comparison) -> String {
    let lines = || comparison.lines.iter();
    let rows = of_processes(comparison);
    let mut out = Vec::new();
    let machines = rows.iter().map(|row| row.environment.device.name.as_str()).unique().count();
    out.extend(match machines {
        0 => None,
        1 => Some(
            "All measurements are of one kind of device: on another one the ratios may differ, and so may the sizes at which \
             a method pays."
                .to_string(),
        ),
        n => Some(format!("The measurements are of {n} kinds of device, which differ in more than the method.")),
    });
    // Cells of several seeds are processes of one method.
    let is_alone = comparison.problems() == comparison.shapes.len();
    if is_alone && !rows.is_empty() && lines().all(|line| line.rows.len() < 2) {
        out.push("Each cell ran in one process, so the times of two cells may differ by as much as those of two processes.".into());
    }
    let trained = lines().any(|line| line.cell.train.optimizer.rule().is_some());
    let whole = if lines().any(|line| line.cell.train.mode.trains()) {
        "forward and backward"
    } else {
        "forward alone"
    };
    if !trained {
        out.push(format!(
            "No parameter is updated: a step is {whole}, and its loss says nothing about learning."
        ));
    }
    let random =
        lines().any(|line| line.cell.model.decoder().is_some() && line.cell.model.weights_folder().is_none());
    if random {
        out.push("Weights begin random: time and memory do not depend on them, but quality does.".into());
    }
    // Optimizers and ways of tuning, each with its learning rates.
    let learning = lines().map(|line| {
        let of = |key: &str| line.settings.get(key).map(ToString::to_string);
        ((of("train.optimizer.kind"), of("tuning.method")), of("train.optimizer.lr"))
    });
    let rates = learning.unique().into_group_map();
    if trained && rates.len() > 1 && rates.values().all(|rates| rates.len() == 1) {
        out.push("Each method was tried at one learning rate; another may suit it better.".into());
    }
    out.extend(waiting(comparison));
    out.extend(
        rows.iter().any(|row| !row.is_on_cpu()).then(|| {
            "Peak memory counts tensors alone; a card must also hold what the driver counts.".into()
        }),
    );
    out.join(" ")
}

/// How many cells of a GPU wait for their host, which launches kernels one by one, where the traces or the rates tell it.
fn waiting(comparison: &Comparison) -> Option<String> {
    let on_gpu = |line: &&Line| line.row.is_some_and(|row| !row.is_on_cpu());
    let lines = || comparison.lines.iter().filter(on_gpu);
    // Blocks that move wait for their copies, ranks for each other, and a graph for nobody.
    let stays =
        |line: &&Line| !line.cell.offload.moves() && !line.cell.train.graph && line.cell.parallel.is_alone();
    let busy: Vec<f64> = lines().filter(stays).filter_map(Line::busy).collect();
    let idle = busy.iter().copied().filter(|busy| *busy < BUSY);
    if let Some(least) = idle.clone().min_by(f64::total_cmp) {
        return Some(format!(
            "At {} of {} traced cells without a graph or offload, kernels take less than {} of the step, at the lowest {}: the \
             rest of these times is that of launching kernels, which larger work would hide.",
            idle.count(),
            busy.len(),
            percent(BUSY),
            percent(least)
        ));
    }
    let share = comparison.frame.of_rows("share_of_matmul_rate", 0..comparison.lines.len()).median();
    share.filter(|share| busy.is_empty() && lines().next().is_some() && *share < WAITING).map(|share| {
        format!(
            "In the median cell the device reaches {} of its rate of matrix products: the work is small, and times are those of \
             launching kernels, which larger models would hide.",
            percent(share)
        )
    })
}

/// Each of the values once, in their order.
fn distinct(values: impl Iterator<Item = String>) -> String {
    and(values.unique())
}

/// `3 warm-up steps`, or `1 and 2 warm-up steps`; empty without a number.
fn all_counted(numbers: impl Iterator<Item = usize>, what: &str) -> String {
    let numbers: BTreeSet<usize> = numbers.collect();
    match numbers.iter().collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        [one] => counted(**one, what),
        all => format!("{} {what}s", and(all.iter())),
    }
}

fn build(environment: &Environment) -> String {
    let Environment { runner_version, commit, build, .. } = environment;
    let commit = if commit.is_empty() { "unknown" } else { commit };
    let build = if build.is_empty() { String::new() } else { format!(", build {build}") };
    format!("{runner_version}, commit {commit}{build}")
}

fn device(device: &DeviceInfo) -> String {
    let mut text = format!(
        "{} ({}, {} cores, {} threads of the host, {} of memory",
        device.name,
        device.id,
        device.cores,
        device.threads,
        Bytes(device.memory_total)
    );
    let versions = [
        ("driver", &device.driver),
        ("CUDA", &device.cuda),
        ("compute capability", &device.compute_capability),
    ];
    for (name, version) in versions {
        text.extend(version.as_ref().map(|version| format!(", {name} {version}")));
    }
    text + ")"
}

/// The clock behind tokens a second.
const RATES: &str = "Tokens a second are those of all measured steps over their whole time by the host's clock, without evaluation.";

/// The outcome of `runner verify` for the builds and devices of the rows.
fn verified(records: &[Record], rows: &[&Row]) -> Option<String> {
    let of = |record: &&Record| {
        let is_its = |e: &Environment| (&e.build, &e.device.name) == (&record.build, &record.device);
        rows.iter().any(|row| is_its(&row.environment))
    };
    let part = |record: &Record| {
        let settings = if record.settings.is_empty() {
            String::new()
        } else {
            format!(" with {}", record.settings.join(", "))
        };
        format!("{}{settings}: {} of {} quantities pass", record.reference, record.passed, record.of)
    };
    let parts = records.iter().filter(of).map(part).unique().join("; ");
    let intro = "Compared with reference values by the same build on the same device (`runner verify`)";
    (!parts.is_empty()).then(|| format!("{intro}: {parts}."))
}

/// How far the gradients of methods without updates are from the baseline's.
fn gradient_norms(comparison: &Comparison) -> Option<String> {
    let norm = |line: usize| comparison.lines[line].measured()?.gradient_norm;
    // In another precision it differs by what the precision rounds.
    let precision = |line: usize| comparison.lines[line].cell.precision;
    let others = (0..comparison.lines.len()).filter(|&line| {
        let base = comparison.lines[line].baseline;
        base.is_some_and(|base| base != line && precision(base) == precision(line))
    });
    let difference = |line: usize| Some((norm(line)? / norm(comparison.lines[line].baseline?)? - 1.0).abs());
    let differences: Vec<f64> = others.filter_map(difference).filter(|d| d.is_finite()).collect();
    let most = differences.iter().copied().reduce(f64::max)?;
    let differs = match most > 0.0 {
        true => format!("differs from the baseline's by at most {most:.1e} of it"),
        false => "equals the baseline's".into(),
    };
    Some(format!(
        "The norm over all gradients of one more step {differs}, over {} of its precision.",
        counted(differences.len(), "cell")
    ))
}

/// Which cells were interrupted and resumed.
fn resumed(rows: &[&Row]) -> Option<String> {
    let measured = rows.iter().filter_map(|row| row.measurement.as_ref());
    let resumed: Vec<&[usize]> = measured.map(|m| &*m.resumed).filter(|steps| !steps.is_empty()).collect();
    let steps = distinct(resumed.iter().copied().flatten().map(usize::to_string));
    (!resumed.is_empty()).then(|| {
        format!(
            "{} of {} cells were interrupted and went on from a saved state in another process, after step {steps}: \
             their times and memory are those of all of their processes.",
            resumed.len(),
            rows.len()
        )
    })
}

/// Which cells have not saved what their recipe asks for, and why.
fn unsaved(rows: &[&Row]) -> Option<String> {
    let unsaved: Vec<&[String]> =
        rows.iter().map(|row| row.unsaved()).filter(|all| !all.is_empty()).collect();
    (!unsaved.is_empty()).then(|| {
        format!(
            "{} of {} cells were measured but not saved: {}.",
            unsaved.len(),
            rows.len(),
            distinct(unsaved.into_iter().flatten().cloned())
        )
    })
}

/// The path that each part of the work took; all of them where rows differ.
fn paths(rows: &[&Row]) -> Option<String> {
    let mut parts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (part, path) in rows.iter().filter_map(|row| row.measurement.as_ref()).flat_map(|m| &m.paths) {
        parts.entry(part).or_default().insert(path);
    }
    let parts = parts.iter().map(|(part, paths)| format!("{part}: {}", paths.iter().join(" or "))).join("; ");
    (!parts.is_empty()).then(|| format!("Paths taken: {parts}"))
}
