//! Tables with several rows for a cell, and that of the devices.

use super::columns::{CEILINGS, CROSSINGS, GRADIENTS, RANKS};
use super::document::Defined;
use super::environment::of_processes;
use super::prelude::*;
use crate::row::Ceilings;

/// What crossed the bus: a row a cell, phase and direction.
pub fn crossings(comparison: &Comparison) -> Option<Table> {
    let moved = comparison.lines.iter().enumerate().filter(|(_, line)| line.cell.offload.moves());
    let rows = moved.flat_map(|(i, line)| {
        line.measured().map_or(&[][..], |m| &m.crossings).iter().map(move |crossing| {
            let copies = format!("{} {}", crossing.copies, crossing.direction);
            (i, vec![("phase", crossing.phase.to_string()), ("copies", copies)], crossing)
        })
    });
    comparison.table_of("crossings", CROSSINGS, rows)
}

/// Each rank of the cells in several processes.
pub fn ranks(comparison: &Comparison) -> Option<Table> {
    let rows = comparison.lines.iter().enumerate().flat_map(|(i, line)| {
        let ranks = line.typical().map_or(&[][..], |measured| &measured.ranks);
        ranks.iter().map(move |rank| (i, vec![("rank", rank.rank.to_string())], rank))
    });
    comparison.table_of("ranks", RANKS, rows)
}

/// The shares of gradients that are lost in fp16, with the scale and without.
pub fn gradients(comparison: &Comparison) -> Option<Table> {
    let counted = comparison.lines.iter().enumerate().filter_map(|(i, line)| {
        let of = line.measured()?.gradient_histogram.as_ref()?;
        let row = |name: &str, sizes| (i, vec![("of", name.to_string())], (of.scale, sizes));
        Some([row("activations", &of.activations), row("parameters", &of.parameters)])
    });
    comparison.table_of("gradients", GRADIENTS, counted.flatten())
}

/// The highest measured rates of each device.
pub fn ceilings(comparison: &Comparison) -> Option<Table> {
    let devices = comparison.lines.iter().filter_map(|line| Some((&line.row?.environment.device.name, line)));
    let all = of_processes(comparison);
    let launch = |name: &str| {
        let rows = all.iter().filter(|row| row.environment.device.name == name);
        rows.filter_map(|row| row.environment.ceilings.launch).min_by(f64::total_cmp)
    };
    let rows = devices.unique_by(|(name, _)| *name).map(|(name, line)| {
        (vec![("device", name.clone())], Ceilings { launch: launch(name), ..line.ceilings })
    });
    Table::of_rows(&Defined::named("ceilings").caption, CEILINGS, rows)
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
