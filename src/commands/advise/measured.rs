//! Runs the best plans, and compares what they take with what was predicted.

use miette::Result;

use super::{AdviseArgs, located};
use crate::advise::{Limits, Plan};
use crate::commands::run::run_cells;
use crate::recipe::Cell;
use crate::row::Row;
use crate::run::{Options, ProcessExecutor, Store};
use crate::words::Bytes;
use crate::words::text::{ratio, seconds, table};

/// The table of the plans as measured.
///
/// # Errors
/// When results cannot be written or the device stays busy.
pub fn measured(args: &AdviseArgs, base: &Cell, plans: &[&Plan], limits: Limits) -> Result<String> {
    let mut lines = Vec::new();
    let mut best: Option<(f64, usize)> = None;
    let executor = ProcessExecutor::this_program()?;
    for (i, plan) in plans.iter().enumerate() {
        let (recipe, _, position) = located(args, base, &plan.cell, limits)?;
        let store = Store::open(&args.results, &recipe, &recipe.device().info())?;
        let options = Options { cells: vec![position + 1], ..Options::default() };
        run_cells(&recipe, &store, &executor, &options, false)?;
        let row = store
            .peek(&recipe.cells, &|_| {})?
            .into_iter()
            .nth(position)
            .and_then(|rows| rows.into_iter().flatten().last());
        let step = row.as_ref().and_then(step_seconds);
        if let Some(step) = step.filter(|step| best.is_none_or(|(least, _)| *step < least)) {
            best = Some((step, i + 1));
        }
        lines.push(line(i + 1, plan, row.as_ref()));
    }
    let header =
        ["", "step, predicted", "measured", "ratio", "memory, estimated", "measured", "ratio", "status"];
    let verdict =
        best.map_or(String::new(), |(_, number)| format!("\nThe fastest as measured is number {number}."));
    Ok(format!("\nThe best as measured:\n{}{verdict}\n", table(&header, lines, 1)))
}

/// The median step of a row that ended well.
fn step_seconds(row: &Row) -> Option<f64> {
    Some(row.measurement.as_ref()?.step.median)
}

fn line(number: usize, plan: &Plan, row: Option<&Row>) -> Vec<String> {
    let (predicted, estimate) = (plan.time.total(), plan.estimate.total());
    let mut line = vec![number.to_string(), seconds(predicted)];
    match row.and_then(step_seconds) {
        Some(step) => line.extend([seconds(step), ratio(predicted / step)]),
        None => line.extend(["-".into(), "-".into()]),
    }
    line.push(Bytes(estimate).to_string());
    match row.and_then(|row| row.measurement.as_ref()) {
        Some(measurement) => {
            let peak = measurement.memory.live_peak;
            line.extend([Bytes(peak).to_string(), ratio(estimate as f64 / peak as f64)]);
        }
        None => line.extend(["-".into(), "-".into()]),
    }
    line.push(row.map_or("no row".into(), |row| match row.reason.is_empty() {
        true => row.status.to_string(),
        false => format!("{}: {}", row.status, row.reason),
    }));
    line
}
