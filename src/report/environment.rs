//! How the rows were measured: device, versions, dates and method, as sentences.

use std::collections::BTreeSet;

use super::prelude::*;
use crate::common::Bytes;
use crate::common::text::{and, counted};
use crate::row::DeviceInfo;
use crate::row::Environment;
use crate::row::Record;

/// Where, when and how the rows were measured; several values where rows differ.
pub fn items(comparison: &Comparison) -> Vec<String> {
    let mut items = machine(comparison);
    let cells = || comparison.lines.iter().map(|line| line.cell);
    let steps =
        cells().filter(|cell| cell.measure.epochs.is_none()).map(|cell| cell.measure.steps.unwrap_or(0));
    let epochs = cells().filter_map(|cell| {
        let epochs = counted(cell.measure.epochs?, "epoch");
        Some(match cell.data.sampler().sampler.keeps_samples() {
            true => format!("{epochs} of the samples, all measured"),
            false => format!("{epochs} of the text, the warm-up steps among them"),
        })
    });
    let epochs = and(epochs.unique());
    items.push(format!(
        "Each cell ran in a process of its own: {}, left out of the times, then {}.",
        all_counted(cells().map(|cell| cell.measure.warmup), "warm-up step"),
        and([all_counted(steps, "measured step"), epochs].into_iter().filter(|text| !text.is_empty()))
    ));
    let trains = cells().any(|cell| cell.train.mode.trains());
    items.push(if trains { PHASES } else { "A step is a forward (batch to loss)." }.into());
    let rows = comparison.lines.iter().filter_map(|line| line.row).filter(|row| ran(row)).collect_vec();
    let on_gpu = rows.iter().any(|row| !row.is_on_cpu());
    items.push(if on_gpu { ON_GPU } else { ON_CPU }.into());
    items.extend(resumed(&rows).into_iter().chain(unsaved(&rows)));
    items
}

const PHASES: &str =
    "Forward (batch to loss), backward (loss to gradients) and the optimizer's update are timed separately.";
const ON_CPU: &str = "Peak memory is the highest number of bytes in use at one moment of a step, above what the process held before the network was built. Every allocation is counted, without what an allocator holds in reserve.";
const ON_GPU: &str = "Peak memory is the most device memory of tensors at one moment of the warm-up steps, above what was held \
    before the network was built, as CubeCL reports it before every launch. Times come from device events in the measured steps, in which the host does not wait. The table's files also have what the pools reserved and what the driver counted.";
/// Device, builds and dates, and how far results are right; nothing without a row.
fn machine(comparison: &Comparison) -> Vec<String> {
    let rows = of_processes(comparison);
    let Some((first, last)) = rows.iter().map(|row| &row.environment.date).minmax().into_option() else {
        return Vec::new();
    };
    let of_rows = |of: fn(&Environment) -> String| and(rows.iter().map(|row| of(&row.environment)).unique());
    let facts = [
        format!("Device: {}", of_rows(|e| device(&e.device))),
        format!("Operating system: {}", of_rows(|e| e.operating_system.clone())),
        format!("runner {}", of_rows(build)),
        format!("Measured {}", if first == last { first.clone() } else { format!("{first} to {last}") }),
    ];
    let more = [paths(&rows), verified(&comparison.verified, &rows), gradient_norms(comparison)];
    facts.into_iter().chain(more.into_iter().flatten()).collect()
}

/// The rows of every process that ran.
pub fn of_processes<'r>(comparison: &Comparison<'r>) -> Vec<&'r Row> {
    comparison.lines.iter().flat_map(|line| line.rows.iter().copied()).filter(|row| ran(row)).collect()
}

/// Whether its machine had what the cell needs.
fn ran(row: &Row) -> bool {
    row.status != Status::Skipped
}

/// `3 warm-up steps`, or `1 and 2 warm-up steps`; empty without a number.
fn all_counted(numbers: impl Iterator<Item = usize>, what: &str) -> String {
    match numbers.sorted().dedup().collect_vec().as_slice() {
        [] => String::new(),
        [one] => counted(*one, what),
        all => format!("{} {what}s", and(all)),
    }
}

fn build(environment: &Environment) -> String {
    let Environment { runner_version, commit, build, .. } = environment;
    let commit = if commit.is_empty() { "unknown" } else { commit };
    let build = if build.is_empty() { String::new() } else { format!(", build {build}") };
    format!("{runner_version}, commit {commit}{build}")
}

fn device(device: &DeviceInfo) -> String {
    let DeviceInfo { name, id, cores, threads, driver, cuda, compute_capability, .. } = device;
    let memory = Bytes(device.memory_total);
    let versions = [("driver", driver), ("CUDA", cuda), ("compute capability", compute_capability)];
    let versions = versions.map(|(of, version)| version.as_ref().map(|version| format!(", {of} {version}")));
    let versions: String = versions.into_iter().flatten().collect();
    format!("{name} ({id}, {cores} cores, {threads} threads of the host, {memory} of memory{versions})")
}

/// The outcome of `runner verify` for the builds and devices of the rows.
fn verified(records: &[Record], rows: &[&Row]) -> Option<String> {
    let is_own = |record: &&Record| {
        let is_its = |e: &Environment| (&e.build, &e.device.name) == (&record.build, &record.device);
        rows.iter().any(|row| is_its(&row.environment))
    };
    let part = |record: &Record| {
        let with = format!("with {}: ", record.settings.join(", "));
        format!("{}{} of {}", if record.settings.is_empty() { "" } else { &with }, record.passed, record.of)
    };
    let of_rows = records.iter().filter(is_own).sorted().chunk_by(|record| &record.reference);
    let references = of_rows
        .into_iter()
        .map(|(reference, records)| format!("{reference} ({})", records.map(part).unique().join("; ")));
    let parts = references.collect_vec().join(", ");
    let intro = "Compared with reference values by the same build on the same device (`runner verify`), quantities that pass:";
    (!parts.is_empty()).then(|| format!("{intro} {parts}."))
}

/// How far the gradients of methods without updates are from the baseline's.
fn gradient_norms(comparison: &Comparison) -> Option<String> {
    let precision = |line: usize| comparison.lines[line].cell.precision;
    // In another precision it differs by what the precision rounds.
    let is_own = |&line: &usize| {
        let base = comparison.lines[line].baseline;
        base.is_some_and(|base| base != line && precision(base) == precision(line))
    };
    let others = (0..comparison.lines.len()).filter(is_own);
    let ratios = comparison.frame.of_rows("gradient_norm_vs_baseline", others);
    let most = ratios.iter().flatten().map(|ratio| (ratio - 1.0).abs()).reduce(f64::max)?;
    let differs = match most > 0.0 {
        true => format!("differs from the baseline's by at most {most:.1e} of it"),
        false => "equals the baseline's".into(),
    };
    let cells = counted(ratios.len(), "cell");
    Some(format!("The norm over all gradients of one more step {differs}, over {cells} of its precision."))
}

/// Which cells were interrupted and resumed.
fn resumed(rows: &[&Row]) -> Option<String> {
    let measured = rows.iter().filter_map(|row| row.measurement.as_ref());
    let resumed = measured.map(|m| &m.resumed).filter(|steps| !steps.is_empty()).collect_vec();
    let steps = and(resumed.iter().flat_map(|steps| steps.iter()).map(usize::to_string).unique());
    (!resumed.is_empty()).then(|| {
        format!(
            "{} of {} cells were interrupted and went on from a saved state in another process, after step {steps}: \
             their times and memory come from all of their processes.",
            resumed.len(),
            rows.len()
        )
    })
}

/// Which cells have not saved what their recipe asks for, and why.
fn unsaved(rows: &[&Row]) -> Option<String> {
    let unsaved = rows.iter().map(|row| row.unsaved()).filter(|all| !all.is_empty()).collect_vec();
    let why = and(unsaved.iter().flat_map(|all| all.iter().cloned()).unique());
    let cells = format!("{} of {} cells were measured but not saved", unsaved.len(), rows.len());
    (!unsaved.is_empty()).then(|| format!("{cells}: {why}."))
}

/// The path that each part of the work took; all of them where rows differ.
fn paths(rows: &[&Row]) -> Option<String> {
    let measured = rows.iter().filter_map(|row| row.measurement.as_ref());
    let parts = measured.flat_map(|m| &m.paths).into_grouping_map().collect::<BTreeSet<_>>();
    let text = |(part, paths): (&String, BTreeSet<&String>)| format!("{part}: {}", paths.iter().join(" or "));
    let parts = parts.into_iter().sorted().map(text).collect_vec();
    let parts = parts.join("; ");
    (!parts.is_empty()).then(|| format!("Paths taken: {parts}"))
}
