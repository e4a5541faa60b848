//! What is predicted of every cell of a recipe against a results folder in which they were measured: how near times and
//! memory are, and what choosing by the prediction costs.

use std::collections::HashMap;
use std::path::Path;

use miette::{Result, miette};
use rayon::prelude::*;

use super::AdviseArgs;
use super::compared::{Compared, fastest, lines};
use crate::advise::{Limits, Plan, Rates};
use crate::commands::plan::{short, shown};
use crate::device::Target;
use crate::recipe::{Cell, Recipe, Source, keys};
use crate::row::{Row, Status};
use crate::run::Results;
use crate::words::DeviceId;
use crate::words::text::{percent, seconds};

/// Errors that count as near, of a time and of memory.
const NEAR: [f64; 2] = [0.15, 0.05];

/// The table of all cells, and the verdicts.
///
/// # Errors
/// When the folder has no row, or the recipe is not valid.
pub fn against(args: &AdviseArgs, folder: &Path) -> Result<String> {
    let results = Results::open(folder)?;
    let Some(first) = results.rows.iter().find(|row| row.measurement.is_some()) else {
        let help = "measure the recipe first: `runner run`";
        return Err(miette!(help = help, "{} has no row of a cell that ran", folder.display()));
    };
    let on_cpu = first.environment.device.id == "cpu";
    let source = Source::read(&args.recipe)?.with(&args.checked.settings.set);
    let recipe = Recipe::parse_finished(&source, on_cpu)?;
    let rates = rates(first, args.checked.target.as_ref());
    let settings_of = |settings| format!("{:?}", recipe.apart_from_device(settings));
    let rows: HashMap<String, &Row> =
        results.rows.iter().map(|row| (settings_of(row.settings()), row)).collect();
    let swept = recipe.telling_keys();
    let compared = |(i, cell): (usize, &Cell)| {
        let settings = cell.settings();
        let value = |key: &String| keys::value(key, &settings).map_or("-".into(), |value| shown(key, &value));
        let names = std::iter::once((i + 1).to_string()).chain(swept.iter().map(value)).collect();
        let row = rows.get(&settings_of(settings)).copied().cloned();
        // What "auto" is, is known of the row's device.
        let mut cell = cell.clone();
        cell.device.clone_from(&first.environment.device.id);
        let limit = limits(&cell, first).memory;
        Compared { names, plan: Plan::new(cell.within(limit), &rates), row }
    };
    let all: Vec<Compared> = recipe.cells.par_iter().enumerate().map(compared).collect();
    let header: Vec<&str> =
        std::iter::once("cell").chain(swept.iter().map(|key| short(key, swept))).collect();
    let verdicts = [Some(errors(&all)), fitting(&all, first), choice(&all, first)];
    let verdicts: Vec<String> = verdicts.into_iter().flatten().collect();
    Ok(format!("{}\n{}\n{}", recipe.title, lines(&header, &all), verdicts.join("\n")))
}

/// As the rows' device measured them; those of its host where that is this machine, and nothing else is asked for.
fn rates(of: &Row, target: Option<&Target>) -> Rates {
    let device = DeviceId::named(&of.environment.device.id);
    let rates = Rates::of(device, of.environment.ceilings);
    let is_here = DeviceId::all().contains(&device) && device.info().name == of.environment.device.name;
    if is_here && target.is_none() { rates.with_host(device) } else { rates }
}

/// What a cell may take of the device that measured it.
fn limits(cell: &Cell, of: &Row) -> Limits {
    let device = &of.environment.device;
    let limit = cell.measure.memory_limit.map_or(device.memory_available, |limit| limit.0);
    Limits { memory: limit, host_memory: cell.measure.host_memory_limit.map(|limit| limit.0) }
}

fn fits(compared: &Compared, of: &Row) -> bool {
    compared.plan.fits(limits(&compared.plan.cell, of))
}

/// How far predictions are from what was measured, in the mean, and how many are near.
fn errors(all: &[Compared]) -> String {
    let of = |what: &str, ratio: fn(&Compared) -> Option<f64>, near: f64| {
        let errors: Vec<f64> = all.iter().filter_map(ratio).map(|ratio| (ratio - 1.0).abs()).collect();
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        let within = errors.iter().filter(|error| **error <= near).count();
        format!(
            "{what} is off by {} in the mean, and by at most {} in {within} of {} cells",
            percent(mean),
            percent(near),
            errors.len()
        )
    };
    let [time, memory] = NEAR;
    format!("{}; {}.", of("The time", Compared::of_step, time), of("the memory", Compared::of_memory, memory))
}

/// Of cells that ran and of those that found no memory, how many were predicted to; `None` where all ran and should.
fn fitting(all: &[Compared], of: &Row) -> Option<String> {
    let with =
        |status: Status| all.iter().filter(move |c| c.row.as_ref().is_some_and(|row| row.status == status));
    let (ran, full) = (with(Status::Ok).count(), with(Status::Oom).count());
    let right = [
        with(Status::Ok).filter(|c| fits(c, of)).count(),
        with(Status::Oom).filter(|c| !fits(c, of)).count(),
    ];
    (right != [ran, 0] || full > 0).then(|| {
        format!(
            "Of {ran} cells that ran {} are predicted to fit; of {full} that found no memory {} are predicted not to.",
            right[0], right[1]
        )
    })
}

/// The cell that the prediction chooses, among those that it takes to fit, and its place among those measured.
fn choice(all: &[Compared], of: &Row) -> Option<String> {
    let fitting = all.iter().filter(|compared| fits(compared, of));
    let chosen = fitting.min_by(|a, b| a.plan.time.total().total_cmp(&b.plan.time.total()))?;
    let (best, number) = (fastest(all)?, &chosen.names[0]);
    let Some(step) = chosen.step() else {
        return Some(format!("The prediction chooses cell {number}, which has no time."));
    };
    let least = best.step()?;
    let faster = all.iter().filter_map(Compared::step).filter(|other| *other < step).count();
    Some(match faster {
        0 => format!("The prediction chooses cell {number}, the fastest of those measured."),
        _ => format!(
            "The prediction chooses cell {number}, whose step of {} is number {} of those measured and {} slower than \
             the fastest, of cell {}.",
            seconds(step),
            faster + 1,
            percent(step / least - 1.0),
            best.names[0]
        ),
    })
}
