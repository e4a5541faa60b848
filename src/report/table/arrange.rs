//! How cells become shapes, methods and baselines.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::{CellShape, Comparison, DEVICE_NAME};
use crate::common::Bytes;
use crate::keys::is_within;
use crate::recipe::keys::{deciders, goes_along, is_size};
use crate::recipe::{Cell, Recipe, keys, matches};
use crate::report::frame::Frame;
use crate::report::prelude::*;
use crate::report::tried::Tried;
use crate::report::{labels, offload, operators};
use crate::row::Ceilings;
use crate::row::ceilings;

impl<'a> Comparison<'a> {
    /// Arranges the cells of a recipe with those of these rows that are theirs.
    pub fn new(recipe: &'a Recipe, rows: &'a [Row]) -> Self {
        let mut settings: Vec<Settings> = recipe.cells.iter().map(Cell::settings).collect();
        for (settings, device) in settings.iter_mut().zip(&recipe.devices) {
            settings.insert(DEVICE_NAME.into(), device.as_str().into());
        }
        let (mut sizes, mut methods) = sizes_and_methods(recipe, &settings);
        let (of_shapes, divided) = of_whole_steps(&settings, &mut sizes);
        let of_steps = !divided.is_empty();
        methods.extend(divided);
        methods.extend(across_sizes(&mut sizes, &of_shapes, recipe));
        let mut of_methods = settings.clone();
        operators::as_one(&mut methods, &recipe.cells, &mut of_methods);
        let (shape_of, first) = group(&of_shapes, &sizes);
        let label_sizes = label_sizes(&sizes, &of_shapes, first.len());
        let of_problem: Vec<String> = sizes.iter().filter(|key| !keys::is_repetition(key)).cloned().collect();
        let (problem_of, _) = group(&of_shapes, &of_problem);
        let shape = |&i: &usize| CellShape {
            label: labels::shape_label(&label_sizes, &of_shapes[i]),
            name: labels::shape_name(&label_sizes, &of_shapes[i]),
            settings: of_shapes[i].clone(),
            problem: problem_of[i],
        };
        let shapes = first.iter().map(shape).collect();
        let (method_of, first) = group(&of_methods, &methods);
        let named = |&i: &usize| labels::Named { settings: &of_methods[i], name: &recipe.names[i] };
        let named: Vec<labels::Named> = first.iter().map(named).collect();
        let methods = labels::methods(&methods, &named, |key| recipe.report.baseline.contains_key(key));

        let is_selected = |settings| matches(settings, &recipe.report.baseline);
        let any = !recipe.report.baseline.is_empty();
        let selected: Vec<bool> = settings.iter().map(|settings| any && is_selected(settings)).collect();
        let baselines = match budgets(recipe).is_empty() {
            true => nearest_baselines(&selected, &shape_of, &of_methods),
            // Ways within different limits: none of them is the one to compare with.
            false => vec![None; settings.len()],
        };
        let lines = lines(recipe, rows, settings, [shape_of, method_of], &baselines);
        let (frame, verified) = (Frame::of_cells(&lines), Vec::new());
        let tried = Tried::new(&lines, &sizes, &frame);
        Self { recipe, sizes, label_sizes, of_steps, shapes, methods, tried, lines, frame, verified }
    }
}

/// The swept keys that are sizes, in reading order, and those that distinguish methods.
fn sizes_and_methods(recipe: &Recipe, settings: &[Settings]) -> (Vec<String>, Vec<String>) {
    let (mut sizes, mut methods): (Vec<String>, Vec<String>) =
        recipe.swept.iter().cloned().partition(|key| is_size(key));
    sizes.sort_by_key(|key| keys::place(key));
    // A key that only one kind of network has distinguishes no sizes.
    sizes.retain(|key| settings.iter().all(|s| s.contains_key(key)) || !goes_along(key, settings));
    sizes.extend((!recipe.devices.is_empty()).then(|| DEVICE_NAME.into()));
    methods.retain(|key| !goes_along(key, settings));
    (sizes, methods)
}

/// Takes those sizes out of `sizes` that the recipe's baseline has: cells of the others are compared with it too.
fn across_sizes(sizes: &mut Vec<String>, of_shapes: &[Settings], recipe: &Recipe) -> Vec<String> {
    let varies = |key: &String| group(of_shapes, std::slice::from_ref(key)).1.len() > 1;
    sizes.extract_if(.., |key| recipe.report.baseline.contains_key(key) && varies(key)).collect()
}

/// The cells with their rows, shapes, methods and baselines.
fn lines<'a>(
    recipe: &'a Recipe,
    rows: &'a [Row],
    settings: Vec<Settings>,
    [shape_of, method_of]: [Vec<usize>; 2],
    baselines: &[Option<usize>],
) -> Vec<Line<'a>> {
    let highest = ceilings::highest(rows);
    let found = find_rows(recipe, rows).into_iter().zip(settings);
    let line = |(i, (rows, settings)): (usize, (Vec<&'a Row>, Settings))| {
        let row = rows.iter().find(|row| row.status == Status::Ok).or(rows.first()).copied();
        Line {
            cell: &recipe.cells[i],
            published: recipe.report.published.iter().find(|p| matches(&settings, &p.cell)),
            settings: Arc::new(settings),
            shape: shape_of[i],
            method: method_of[i],
            row,
            rows,
            baseline: baselines[i],
            nearest: baselines[i].is_some_and(|base| baselines[base] != Some(base)),
            ceilings: row.map_or_else(Ceilings::default, |row| highest[&*row.environment.device.name]),
            trace: None,
        }
    };
    let mut lines: Vec<Line> = found.enumerate().map(line).collect();
    with_proven_rates(&mut lines);
    lines
}

/// Raises the rate of the bus each way at once to what the steps of the device prove.
fn with_proven_rates(lines: &mut [Line]) {
    let mut proven: HashMap<&str, f64> = HashMap::new();
    for line in lines.iter() {
        if let Some((row, rate)) = line.row.zip(offload::proven(line)) {
            let highest = proven.entry(&row.environment.device.name).or_default();
            *highest = highest.max(rate);
        }
    }
    for line in lines {
        let rate = line.row.and_then(|row| proven.get(row.environment.device.name.as_str()));
        if let Some(rate) = rate {
            line.ceilings.both_ways = line.ceilings.both_ways.map(|both| both.max(*rate));
        }
    }
}

/// The limits of device memory, rising, where every cell has one, they differ, and neither a baseline nor a ladder says what a
/// cell is compared with.
pub fn budgets(recipe: &Recipe) -> Vec<Bytes> {
    let is_free = recipe.report.baseline.is_empty() && recipe.report.ladder.is_empty();
    let limits = recipe.cells.iter().map(|cell| cell.measure.memory_limit);
    let limits: Option<Vec<Bytes>> = limits.collect::<Option<_>>().filter(|_| is_free);
    let limits = limits.unwrap_or_default().into_iter().sorted().dedup().collect_vec();
    if limits.len() > 1 { limits } else { Vec::new() }
}

/// What the time and memory of unlike methods also differ by: the types of numbers, the optimizer, and where its state is.
const LIKE: [&str; 3] = ["precision", "train.optimizer", "offload.optimizer"];

/// The baseline of each cell, of its shape: the selected ones, else the first cell; and their twins, which differ from one of
/// them in the precision, the optimizer or the place of its state alone. These are compared with the first, and each other cell
/// with the one of its own precision and state, and of those with the one with the most settings like its own: bf16 with bf16,
/// and with a graph and without each level with level 0 of its kind.
fn nearest_baselines(selected: &[bool], shape_of: &[usize], settings: &[Settings]) -> Vec<Option<usize>> {
    let of_shapes = (0..shape_of.len()).into_group_map_by(|&i| shape_of[i]);
    let any_selected = selected.contains(&true);
    let mut nearest = vec![None; settings.len()];
    for cells in of_shapes.values() {
        let chosen = |i: &&usize| if any_selected { selected[**i] } else { **i == cells[0] };
        let chosen: Vec<usize> = cells.iter().filter(chosen).copied().collect();
        let Some(&first) = chosen.first() else { continue };
        let has_own = |i: usize| chosen.iter().any(|&base| differences(settings, i, base).0 == 0);
        let is_alike = |i: usize| chosen.iter().any(|&base| differences(settings, i, base).1 == 0);
        let is_twin = |i: usize| chosen.contains(&i) || !has_own(i) && is_alike(i);
        let bases: Vec<usize> = cells.iter().copied().filter(|&i| is_twin(i)).collect();
        for &i in cells {
            let by_likeness = |&base: &usize| (differences(settings, i, base), base != first);
            let alike = || bases.iter().copied().min_by_key(by_likeness);
            nearest[i] = if is_twin(i) { Some(first) } else { alike() };
        }
    }
    nearest
}

/// How many settings two cells differ in: those of [`LIKE`], and the others.
fn differences(settings: &[Settings], i: usize, base: usize) -> (usize, usize) {
    let (own, other) = (&settings[i], &settings[base]);
    let keys = own.keys().chain(other.keys().filter(|key| !own.contains_key(*key)));
    let unlike = keys.filter(|key| own.get(*key) != other.get(*key));
    let (like, rest): (Vec<&String>, Vec<&String>) =
        unlike.partition(|key| LIKE.iter().any(|of| is_within(key, of)));
    (like.len(), rest.len())
}

/// The settings with the sizes of a whole step in place of those of its parts, where that makes cells comparable: 8 x 4
/// micro-batches and 16 x 2. The keys that divide a step are taken out of `sizes`, and given back.
fn of_whole_steps(settings: &[Settings], sizes: &mut Vec<String>) -> (Vec<Settings>, Vec<String>) {
    let mut of_steps = settings.to_vec();
    let mut divided = Vec::new();
    for key in sizes.clone() {
        let whole = keys::find(&key).and_then(|entry| entry.key.divides);
        let Some(whole) = whole.filter(|whole| sizes.iter().any(|size| size == whole)) else { continue };
        let mut merged = of_steps.clone();
        for settings in &mut merged {
            let number = |key: &str| settings.get(key).and_then(Value::as_u64).unwrap_or(1);
            let product = number(whole) * number(&key);
            settings.insert(whole.into(), product.into());
        }
        let others: Vec<String> = sizes.iter().filter(|size| **size != key).cloned().collect();
        if group(&merged, &others).1.len() < group(&of_steps, sizes).1.len() {
            (of_steps, *sizes) = (merged, others);
            divided.push(key);
        }
    }
    (of_steps, divided)
}

/// The rows of each cell, one for each of its processes: the last one with the same settings.
fn find_rows<'a>(recipe: &Recipe, rows: &'a [Row]) -> Vec<Vec<&'a Row>> {
    let (apart, known_by) = (!recipe.devices.is_empty(), recipe.apart_from_device());
    let name = |settings: Settings, device: &str| {
        let device = if apart { device } else { "" };
        (format!("{:?}", known_by(settings)), device.to_string())
    };
    let mut by_cell: HashMap<(String, String), BTreeMap<usize, &Row>> = HashMap::new();
    for row in rows {
        let device = &row.environment.device.name;
        by_cell.entry(name(row.settings(), device)).or_default().insert(row.repeat, row);
    }
    let devices = recipe.devices.iter().map(String::as_str).chain(std::iter::repeat(""));
    let of_cell = |(cell, device): (&Cell, &str)| {
        by_cell.get(&name(cell.settings(), device)).map(|rows| rows.values().copied().collect())
    };
    recipe.cells.iter().zip(devices).map(|of| of_cell(of).unwrap_or_default()).collect()
}

/// The group of each cell by its values of `keys`, and the first cell of each group.
fn group(settings: &[Settings], keys: &[String]) -> (Vec<usize>, Vec<usize>) {
    let mut first: Vec<usize> = Vec::new();
    let mut groups: HashMap<Vec<Option<&Value>>, usize> = HashMap::new();
    let groups_of = settings.iter().enumerate().map(|(i, settings)| {
        *groups.entry(keys.iter().map(|key| settings.get(key)).collect()).or_insert_with(|| {
            first.push(i);
            first.len() - 1
        })
    });
    (groups_of.collect(), first)
}

/// Up to three sizes, and more while two shapes would share a label; where none differs, the first that every
/// recipe must write. What a preset or the tokenizer decides comes last.
fn label_sizes(sizes: &[String], settings: &[Settings], shapes: usize) -> Vec<String> {
    if sizes.is_empty() {
        let must = |entry: &&keys::Entry| {
            entry.key.default.is_required()
                && entry.is_of(&settings[0])
                && settings[0].contains_key(&entry.path)
        };
        let alike =
            |entry: &&keys::Entry| settings.iter().map(|settings| settings.get(&entry.path)).all_equal();
        let usual = keys::all().iter().filter(|entry| is_size(&entry.path)).filter(must).filter(alike);
        return usual.take(3).map(|entry| entry.path.clone()).collect();
    }
    let follows = |key: &String| deciders(key).any(|leader| sizes.iter().any(|size| size == leader));
    let (last, mut shown): (Vec<String>, Vec<String>) = sizes.iter().cloned().partition(follows);
    let more = shown.split_off(shown.len().min(3));
    for key in more.into_iter().chain(last) {
        if group(settings, &shown).1.len() == shapes {
            break;
        }
        shown.push(key);
    }
    shown
}

#[cfg(test)]
#[path = "arrange_tests.rs"]
mod tests;
