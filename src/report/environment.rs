//! How the rows were measured: device, versions, dates and method, as sentences.

use std::collections::{BTreeMap, BTreeSet};

use itertools::Itertools;

use super::ceilings;
use super::table::Comparison;
use crate::common::Bytes;
use crate::common::text::{and, counted};
use crate::row::DeviceInfo;
use crate::row::Record;
use crate::row::{Environment, Row, Status};

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
pub fn of_processes<'r>(comparison: &Comparison<'r>) -> Vec<&'r Row> {
    comparison.lines.iter().flat_map(|line| line.rows.iter().copied()).filter(|row| ran(row)).collect()
}

/// Whether its machine had what the cell needs.
fn ran(row: &Row) -> bool {
    row.status != Status::Skipped
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
        let outcome = format!("{} of {}", record.passed, record.of);
        match record.settings.as_slice() {
            [] => outcome,
            settings => format!("with {}: {outcome}", settings.join(", ")),
        }
    };
    let of_rows = records.iter().filter(of).sorted().chunk_by(|record| &record.reference);
    let references = of_rows.into_iter().map(|(reference, records)| {
        let outcomes = records.map(part).unique().join("; ");
        format!("{reference} ({outcomes})")
    });
    let parts = references.collect::<Vec<_>>().join(", ");
    let intro = "Compared with reference values by the same build on the same device (`runner verify`), quantities that pass:";
    (!parts.is_empty()).then(|| format!("{intro} {parts}."))
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
