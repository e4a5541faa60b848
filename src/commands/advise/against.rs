//! The predictions for every cell of a recipe against its measured rows: how close times and memory are, and what choosing
//! by the prediction costs.

use std::collections::HashMap;
use std::path::Path;

use itertools::Itertools;
use miette::{Result, miette};
use rayon::prelude::*;

use super::AdviseArgs;
use super::compared::{Compared, fastest, lines};
use crate::advise::{Limits, Plan, Rates};
use crate::commands::open_results;
use crate::commands::plan::short;
use crate::device::Target;
use crate::recipe::{Cell, Recipe, Source, keys};
use crate::row::{Row, Status, ceilings};
use crate::run::{resolve_auto, resolve_graphs};
use crate::words::DeviceId;
use crate::words::text::{percent, seconds};

/// Errors of a time and of memory that count as near.
const NEAR: [f64; 2] = [0.15, 0.05];

/// The table of all cells, and the verdicts.
///
/// # Errors
/// When the folder has no row, or the recipe is not valid.
pub fn against(args: &AdviseArgs, folder: &Path) -> Result<String> {
    let results = open_results(folder)?;
    let Some(first) = results.rows.iter().find(|row| row.measurement.is_some()) else {
        let help = "measure the recipe first: `runner run`";
        return Err(miette!(help = help, "{} has no row of a cell that ran", folder.display()));
    };
    let on_cpu = first.is_on_cpu();
    let source = Source::read(&args.recipe)?.with(&args.checked.settings.set);
    let mut recipe = Recipe::parse_finished(&source, on_cpu)?;
    resolve_graphs(&mut recipe, &results.rows);
    resolve_auto(&mut recipe, &results.rows);
    let rates = rates(first, &results.rows, args.checked.target.as_ref());
    let known_by = recipe.apart_from_device();
    let settings_of = |settings| format!("{:?}", known_by(settings));
    let mut rows: HashMap<String, &Row> = HashMap::new();
    for row in &results.rows {
        let known = rows.entry(settings_of(row.settings())).or_insert(row);
        // Of several processes of a cell the first that ran to its end.
        if known.measurement.is_none() {
            *known = row;
        }
    }
    let swept = &recipe.telling;
    let compared = |(i, cell): (usize, &Cell)| {
        let settings = cell.settings();
        let value =
            |key: &String| keys::value(key, &settings).map_or("-".into(), |value| keys::shown(key, &value));
        let names = std::iter::once((i + 1).to_string()).chain(swept.iter().map(value)).collect();
        let row = rows.get(&settings_of(settings)).copied().cloned();
        let limit = limits(cell, first).memory;
        Compared { names, plan: Plan::new(cell.within(limit), Some(&rates)), row }
    };
    // The rates are those of one device.
    let is_there = |(_, cell): &(usize, &Cell)| cell.device == first.environment.device.id;
    let all: Vec<Compared> = recipe.cells.par_iter().enumerate().filter(is_there).map(compared).collect();
    let header: Vec<&str> =
        std::iter::once("cell").chain(swept.iter().map(|key| short(key, swept))).collect();
    let verdicts = [Some(errors(&all)), fitting(&all, first), choice(&all, first)];
    let verdicts: Vec<String> = verdicts.into_iter().flatten().collect();
    Ok(format!("{}\n{}\n{}", recipe.title, lines(&header, &all), verdicts.join("\n")))
}

/// The highest rates that were measured with the rows of a device; with those of the host where this machine has the device
/// and no other is asked for.
fn rates(of: &Row, rows: &[Row], target: Option<&Target>) -> Rates {
    let device = DeviceId::named(&of.environment.device.id);
    let rates = Rates::of(device, ceilings::highest(rows)[&*of.environment.device.name]);
    let is_here = DeviceId::all().contains(&device) && device.info().name == of.environment.device.name;
    if is_here && target.is_none() { rates.with_host(device) } else { rates }
}

/// The memory that the cell may take on the device that measured it.
fn limits(cell: &Cell, of: &Row) -> Limits {
    let device = &of.environment.device;
    let limit = cell.measure.memory_limit.map_or(device.memory_available, |limit| limit.0);
    Limits { memory: limit, host_memory: cell.measure.host_memory_limit.map(|limit| limit.0) }
}

fn fits(compared: &Compared, of: &Row) -> bool {
    compared.plan.fits(limits(&compared.plan.cell, of))
}

/// The mean error of the predictions, and how many are near.
fn errors(all: &[Compared]) -> String {
    if all.iter().all(|compared| compared.step().is_none()) {
        return "No cell of the recipe has a row that ran to its end.".into();
    }
    let of = |what: &str, ratio: fn(&Compared) -> Option<f64>, near: f64| {
        let errors: Vec<f64> = all.iter().filter_map(ratio).map(|ratio| (ratio - 1.0).abs()).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
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

/// How many of the cells that ran, and of those that ran out of memory, were predicted to; `None` where all ran as predicted.
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
            "Predicted to fit: {} of {ran} cells that ran; predicted not to fit: {} of {full} that ran out of memory.",
            right[0], right[1]
        )
    })
}

/// The cells of the work that most of them do within one limit: steps of another size, without an update or within another
/// limit are no choice.
fn of_one_work(all: &[Compared]) -> Vec<&Compared> {
    let work = |compared: &Compared| {
        let cell = &compared.plan.cell;
        let tokens = cell.train.tokens() * cell.train.accumulation_steps;
        let updates = cell.train.optimizer.rule().is_some();
        let limit = cell.measure.memory_limit.map(|limit| limit.0);
        (cell.to_json()["model"].to_string(), tokens, updates, limit)
    };
    let works: Vec<_> = all.iter().map(work).collect();
    let counts = works.iter().counts();
    // The first of several: max_by_key takes the last.
    let most = works.iter().rev().max_by_key(|work| counts[work]);
    all.iter().zip(&works).filter(|(_, work)| Some(*work) == most).map(|(compared, _)| compared).collect()
}

/// The fastest cell by the prediction, among those of one work that are predicted to fit, and its place among those
/// measured.
fn choice(all: &[Compared], of: &Row) -> Option<String> {
    let alike = of_one_work(all);
    let fitting = alike.iter().filter(|compared| fits(compared, of));
    let timed = fitting.filter_map(|compared| Some((compared.plan.seconds()?, compared)));
    let (_, chosen) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (best, number) = (fastest(alike.iter().copied())?, &chosen.names[0]);
    let among = match alike.len() == all.len() {
        true => "The".to_string(),
        false => {
            format!("Of the {} cells that do the work of cell {number} within its limit, the", alike.len())
        }
    };
    let Some(step) = chosen.step() else {
        return Some(format!("{among} prediction chooses cell {number}, which has no time."));
    };
    let least = best.step()?;
    let faster = alike.iter().filter_map(|compared| compared.step()).filter(|other| *other < step).count();
    Some(match faster {
        0 => format!("{among} prediction chooses cell {number}, the fastest of those measured."),
        _ => format!(
            "{among} prediction chooses cell {number}, whose step of {} is number {} of those measured and {} slower than \
             the fastest, of cell {}.",
            seconds(step),
            faster + 1,
            percent(step / least - 1.0),
            best.names[0]
        ),
    })
}
