//! Runs the best plans, and compares their time and memory with the predictions.

use miette::{Result, miette};

use super::AdviseArgs;
use super::compared::{Compared, fastest, lines};
use super::located::Located;
use crate::advise::{Limits, Plan};
use crate::commands::run::run_cells;
use crate::recipe::Cell;
use crate::run::{Options, ProcessExecutor, Store};

/// The table of the plans as measured.
///
/// # Errors
/// When results cannot be written, the device stays busy, or Ctrl-C ends it.
pub fn measured(args: &AdviseArgs, base: &Cell, plans: &[&Plan], limits: Limits) -> Result<String> {
    let mut all = Vec::new();
    let executor = ProcessExecutor::this_program()?;
    for (i, plan) in plans.iter().enumerate() {
        let Located { recipe, position, .. } = Located::of(args, base, &plan.cell, limits)?;
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
        let row = rows.and_then(|rows| rows.into_iter().flatten().last());
        all.push(Compared { names: vec![(i + 1).to_string()], plan: (*plan).clone(), row });
    }
    let verdict = fastest(&all)
        .map_or(String::new(), |best| format!("\nThe fastest of them is number {}.", best.names[0]));
    Ok(format!("\nThe best as measured:\n{}{verdict}\n", lines(&[""], &all)))
}
