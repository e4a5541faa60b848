//! Runs the best plans, and compares their time and memory with the predictions.

use itertools::Itertools;
use miette::{Result, miette};

use super::AdviseArgs;
use super::located::Located;
use super::question::Question;
use crate::advise::Plan;
use crate::commands::run::run_cells;
use crate::common::Bytes;
use crate::common::text::{ratio, seconds, table};
use crate::row::Row;
use crate::run::{Options, ProcessExecutor, Store};

/// The table of the plans as measured.
///
/// # Errors
/// When results cannot be written, the device stays busy, or Ctrl-C ends it.
pub fn measured(args: &AdviseArgs, question: &Question, plans: &[&Plan]) -> Result<String> {
    let mut all = Vec::new();
    let executor = ProcessExecutor::this_program()?;
    for (i, plan) in plans.iter().enumerate() {
        let Located { recipe, position, .. } = Located::new(question, &plan.cell, question.limits)?;
        let store = Store::open(&args.results, &recipe, &recipe.device().info())?;
        let options = Options { cells: vec![position + 1], ..Options::default() };
        if run_cells(&recipe, &store, &executor, &options, false)?.interrupted {
            return Err(miette!(
                help = "the same command goes on",
                "interrupted: {i} of {} ways are measured",
                plans.len()
            ));
        }
        let rows = store.peek(&recipe.cells, &|_| {})?.into_iter().nth(position);
        all.push((*plan, rows.and_then(|rows| rows.into_iter().flatten().last())));
    }
    Ok(format!("\nThe best as measured:\n{}\n", compared(&all)))
}

/// A line for each plan with its row, why some have no numbers, and which was the fastest.
fn compared(all: &[(&Plan, Option<Row>)]) -> String {
    const HEADER: [&str; 8] =
        ["", "step, predicted", "measured", "ratio", "memory, expected", "measured", "ratio", "status"];
    let lines = all.iter().zip(1..).map(|((plan, row), number)| line(number, plan, row.as_ref()));
    let table = table(&HEADER, lines.collect(), 1);
    let rows = || all.iter().zip(1..).filter_map(|((_, row), number)| Some((number, row.as_ref()?)));
    let failed = rows().filter(|(_, row)| !row.reason.is_empty());
    let reasons = failed.map(|(number, row)| format!("{number}: {}", row.reason));
    let steps = rows().filter_map(|(number, row)| Some((number, row.measurement.as_ref()?.step.median)));
    let fastest = steps.min_by(|a, b| a.1.total_cmp(&b.1));
    let fastest = fastest.map(|(number, _)| format!("The fastest of them is number {number}."));
    std::iter::once(table).chain(reasons).chain(fastest).join("\n")
}

fn line(number: usize, plan: &Plan, row: Option<&Row>) -> Vec<String> {
    let measurement = row.and_then(|row| row.measurement.as_ref());
    let step = measurement.map(|measured| measured.step.median);
    // The driver's figure, where there is one.
    let memory = measurement.map(|measured| measured.memory);
    let peak = memory.map(|memory| memory.driver_peak.unwrap_or(memory.live_peak));
    let expected = plan.driver_memory;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    vec![
        number.to_string(),
        or_none(plan.seconds().map(seconds)),
        or_none(step.map(seconds)),
        or_none(plan.seconds().zip(step).map(|(predicted, measured)| ratio(predicted / measured))),
        Bytes(expected).to_string(),
        or_none(peak.map(|peak| Bytes(peak).to_string())),
        or_none(peak.map(|peak| ratio(expected as f64 / peak as f64))),
        row.map_or("no row".into(), |row| row.status.to_string()),
    ]
}
