//! How it was measured: device, versions, dates and method, as sentences.

use std::collections::BTreeSet;

use super::format::{and, significant};
use super::table::{Comparison, Line};
use crate::recipe::Bytes;
use crate::row::{Environment, Row};

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
    let of_cells = |of: &dyn Fn(&Line) -> usize| -> String {
        let values: BTreeSet<usize> = comparison.lines.iter().map(of).collect();
        and(&values.iter().map(ToString::to_string).collect::<Vec<_>>())
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
            format!(
                "Device: {}",
                distinct(&|e| format!(
                    "{} ({}, {} cores, {} threads, {} of memory)",
                    e.device.name,
                    e.device.id,
                    e.device.cores,
                    e.device.threads,
                    Bytes(e.device.memory_total)
                ))
            ),
            format!("Measured ceilings of the device: {}", distinct(&ceilings)),
            format!("Operating system: {}", distinct(&|e| e.operating_system.clone())),
            format!(
                "runner {}",
                distinct(&|e| {
                    let commit = if e.commit.is_empty() { "unknown" } else { &e.commit };
                    format!("{}, commit {commit}", e.runner_version)
                })
            ),
            format!("Measured {dates}"),
        ]);
    }
    items.extend([
        format!(
            "Each cell ran in a process of its own: {} warm-up steps, left out of the times, then {} \
             measured steps.",
            of_cells(&|line| line.cell.measure.warmup),
            of_cells(&|line| line.cell.measure.steps)
        ),
        "Timed, each by itself: forward (batch to loss), backward (loss to gradients) and the optimizer's \
         update. A time is the median of the measured steps. A difference is called measurable when it is \
         larger than the interquartile range of the samples of both methods."
            .into(),
        "Peak memory is the most bytes live at any moment of any step, above what the process held before \
         the network was built; every allocation is counted, so it is exact and free of what an allocator \
         holds in reserve."
            .into(),
    ]);
    items
}

fn ceilings(environment: &Environment) -> String {
    let c = &environment.ceilings;
    let matmul = [("fp32", c.matmul_fp32), ("bf16", c.matmul_bf16), ("fp16", c.matmul_fp16)];
    let mut parts: Vec<String> = matmul
        .into_iter()
        .filter_map(|(name, rate)| Some(format!("matmul {name} {} GFLOP/s", significant(rate? / 1e9))))
        .collect();
    parts
        .extend(c.copy.map(|rate| format!("copy {} GB/s (bytes read and written)", significant(rate / 1e9))));
    if parts.is_empty() { "not measured".into() } else { parts.join(", ") }
}
