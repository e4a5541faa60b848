//! How it was measured: device, versions, dates and method, as sentences.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{Comparison, Line};
use crate::device::DeviceInfo;
use crate::recipe::Length;
use crate::row::{Environment, Row};
use crate::words::Bytes;
use crate::words::text::{and, significant};

/// Where, when and how the rows were measured; several values where rows differ.
pub fn items(comparison: &Comparison) -> Vec<String> {
    let rows: Vec<&Row> = comparison.lines.iter().filter_map(|line| line.row).collect();
    let distinct = |of: &dyn Fn(&Environment) -> String| -> String {
        let mut seen: Vec<String> = Vec::new();
        for text in rows.iter().map(|row| of(&row.environment)) {
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        and(&seen)
    };
    let of_cells = |of: &dyn Fn(&Line) -> String| -> String {
        let mut values: Vec<String> = comparison.lines.iter().map(of).collect();
        let mut seen = BTreeSet::new();
        values.retain(|value| seen.insert(value.clone()));
        and(&values)
    };
    let mut items = Vec::new();
    if !rows.is_empty() {
        let dates: BTreeSet<&String> = rows.iter().map(|row| &row.environment.date).collect();
        let dates: Vec<&&String> = dates.iter().collect();
        let dates = match dates.as_slice() {
            [one] => one.to_string(),
            [first, .., last] => format!("{first} to {last}"),
            [] => String::new(),
        };
        items.extend([
            format!("Device: {}", distinct(&|e| device(&e.device))),
            format!("Measured ceilings of the device: {}", distinct(&ceilings)),
            format!("Operating system: {}", distinct(&|e| e.operating_system.clone())),
            format!(
                "runner {}",
                distinct(&|e| {
                    let commit = if e.commit.is_empty() { "unknown" } else { &e.commit };
                    let build = if e.build.is_empty() { "" } else { ", build " };
                    format!("{}, commit {commit}{build}{}", e.runner_version, e.build)
                })
            ),
            format!("Measured {dates}"),
        ]);
        items.extend(paths(&rows));
    }
    items.extend([
        format!(
            "Each cell ran in a process of its own: {} warm-up steps, left out of the times, then {}.",
            of_cells(&|line| line.cell.measure.warmup.to_string()),
            of_cells(&|line| match line.cell.measure.length {
                Length::Steps(steps) => format!("{steps} measured steps"),
                Length::Epochs(1) => "one epoch of the samples, all of it measured".into(),
                Length::Epochs(epochs) => format!("{epochs} epochs of the samples, all of them measured"),
            })
        ),
        "Timed, each by itself: forward (batch to loss), backward (loss to gradients) and the optimizer's \
         update. A time is the median of the measured steps. A difference is called measurable when it is \
         larger than the interquartile range of the samples of both methods."
            .into(),
        match rows.iter().any(|row| row.environment.device.id.starts_with("cuda")) {
            false => "Peak memory is the most bytes live at any moment of any step, above what the process held \
                      before the network was built; every allocation is counted, so it is exact and free of \
                      what an allocator holds in reserve."
                .into(),
            true => "Peak memory is the most device memory in tensors at any moment of the warm-up steps, above \
                     what was held before the network was built, asked of CubeCL before every launch. Times are \
                     those of device events in the measured steps, in which the host does not wait. The \
                     table's files also have what the pools reserved and what the driver counted."
                .into(),
        },
    ]);
    items.extend(rates(&rows));
    if comparison.with_samplers() {
        items.push(
            "With a sampler, warm-up trains a network of its own on the largest batch, so that every sample of \
             an epoch meets the measured steps alone. On a GPU the matrix products of the largest batch are \
             tuned; those of other lengths take cuBLASLt's own choice."
                .into(),
        );
    }
    items
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

/// What tokens a second are: the clock of rows that have a time of the run, or of those that have none.
fn rates(rows: &[&Row]) -> Option<String> {
    let measured: Vec<_> = rows.iter().filter_map(|row| row.measurement.as_ref()).collect();
    let timed = measured.iter().filter(|m| m.run_seconds.is_some() || m.loading.is_some()).count();
    let run = "those of all measured steps over their whole time by the host's clock, evaluation left out";
    let step = "those of a step over the median of its phases";
    match (timed, measured.len() - timed) {
        (0, 0) => None,
        (_, 0) => Some(format!("Tokens a second are {run}.")),
        (0, _) => Some(format!("Tokens a second are {step}.")),
        (n, 1) => Some(format!("Tokens a second of {n} cells are {run}; of the other one, {step}.")),
        (n, others) => {
            Some(format!("Tokens a second of {n} cells are {run}; of the other {others}, {step}."))
        }
    }
}

/// Which way each part of the work took; a part that took several ways over the rows names all.
fn paths(rows: &[&Row]) -> Option<String> {
    let mut parts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (part, path) in rows.iter().filter_map(|row| row.measurement.as_ref()).flat_map(|m| &m.paths) {
        parts.entry(part).or_default().insert(path);
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(part, paths)| format!("{part}: {}", paths.into_iter().collect::<Vec<_>>().join(" or ")))
        .collect();
    (!parts.is_empty()).then(|| format!("Paths taken: {}", parts.join("; ")))
}

fn ceilings(environment: &Environment) -> String {
    let c = &environment.ceilings;
    let matmul =
        [("fp32", c.matmul_fp32), ("tf32", c.matmul_tf32), ("bf16", c.matmul_bf16), ("fp16", c.matmul_fp16)];
    let mut parts: Vec<String> = matmul
        .into_iter()
        .filter_map(|(name, rate)| Some(format!("matmul {name} {} GFLOP/s", significant(rate? / 1e9))))
        .collect();
    parts
        .extend(c.copy.map(|rate| format!("copy {} GB/s (bytes read and written)", significant(rate / 1e9))));
    let bus = [
        ("to the device", c.host_to_device),
        ("to the host", c.device_to_host),
        ("each way at once", c.both_ways),
    ];
    for (name, rate) in bus {
        parts.extend(rate.map(|rate| format!("pinned copy {name} {} GB/s", significant(rate / 1e9))));
    }
    if parts.is_empty() { "not measured".into() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn rates_are_named_by_the_clock_that_each_row_has() {
        let recipe = testing::recipe(testing::STUDY);
        let earlier = testing::rows(&recipe);
        let mut now = earlier.clone();
        for row in &mut now {
            row.measurement.as_mut().expect("a measured row").run_seconds = Some(1.0);
        }
        let told = |rows: &[Row]| rates(&rows.iter().collect::<Vec<_>>());
        assert_eq!(told(&[]), None);
        assert!(
            told(&earlier).is_some_and(|text| text.starts_with("Tokens a second are those of a step over"))
        );
        assert!(
            told(&now)
                .is_some_and(|text| text.starts_with("Tokens a second are those of all measured steps"))
        );
        let mixed = told(&[&now[..2], &earlier[2..3]].concat()).expect("measured rows");
        assert!(
            mixed.contains("of 2 cells are those of all")
                && mixed.contains("of the other one, those of a step")
        );
    }
}
