//! [`Comparison`]: the rows of a recipe arranged for comparing. Cells of equal sizes are a
//! *shape*; what differs within a shape is the *method*; each is set against its shape's baseline.

use std::collections::{BTreeMap, HashMap};

use itertools::Itertools;
use polars::prelude::ChunkQuantile;
use serde_json::Value;

use super::columns::{self, Column, TRACES};
use super::document::{Defined, Table};
use super::frame::Frame;
use super::timelines::Timelines;
use super::{labels, operators};
use crate::measure::Measurement;
use crate::recipe::keys::{deciders, goes_along, is_size};
use crate::recipe::{Cell, Published, Recipe, keys, matches};
use crate::row::{Row, Status};
use crate::verify::Record;
use crate::words::Settings;

/// The size by which results of several devices are told apart. No recipe has it.
pub const DEVICE_NAME: &str = "device name";

/// The cells of a recipe in its order, with their rows, shapes, methods and baselines.
pub struct Comparison<'a> {
    pub recipe: &'a Recipe,
    /// Every swept key, in the order of the settings.
    pub swept: Vec<String>,
    /// The swept keys that are sizes, in reading order.
    pub sizes: Vec<String>,
    /// The sizes that shape labels show: enough of them to distinguish the shapes.
    pub label_sizes: Vec<String>,
    pub shapes: Vec<CellShape>,
    /// Labels of the methods, in order of appearance.
    pub methods: Vec<String>,
    /// What goes without saying in these labels; may be empty.
    pub shared: String,
    pub lines: Vec<Line<'a>>,
    /// [`columns::CELLS`] and the like, a row a line.
    pub frame: Frame,
    /// Names of the columns of what crossed the bus, of the phases and directions that any cell has.
    pub crossings: Vec<String>,
    /// What `runner verify` left beside the rows.
    pub verified: Vec<Record>,
}

/// Cells of equal sizes.
pub struct CellShape {
    pub label: String,
    /// The settings of the shape's first cell.
    pub settings: Settings,
    /// Which problem it is of: shapes that a repetition alone, such as the seed, tells apart have one.
    problem: usize,
}

/// Cells of one method at one problem: one, or one for each repetition, such as a seed.
pub struct Group {
    pub problem: usize,
    pub method: usize,
    pub lines: Vec<usize>,
}

/// One cell of the recipe.
pub struct Line<'a> {
    pub cell: &'a Cell,
    pub settings: Settings,
    /// Index into [`Comparison::shapes`].
    pub shape: usize,
    /// Index into [`Comparison::methods`].
    pub method: usize,
    /// Of the cell's first process that ended well, else of its first; absent while the cell has not run.
    pub row: Option<&'a Row>,
    /// Of each of its processes.
    pub rows: Vec<&'a Row>,
    /// Index of the line that this one is compared with; may be its own.
    pub baseline: Option<usize>,
    pub published: Option<&'a Published>,
}

impl<'a> Line<'a> {
    /// What was measured, of a cell that ran to its end.
    pub fn measured(&self) -> Option<&'a Measurement> {
        self.row.and_then(of_its_end)
    }

    /// What each of its processes measured.
    pub fn measurements(&self) -> impl Iterator<Item = &'a Measurement> {
        self.rows.iter().copied().filter_map(of_its_end)
    }

    /// The line as if this row were its only one.
    pub fn of_process(&self, row: &'a Row) -> Self {
        Self { row: Some(row), rows: vec![row], settings: self.settings.clone(), ..*self }
    }

    /// How it ended; of a cell whose processes ended differently, how many of them ended well.
    pub fn status(&self) -> String {
        let Some(row) = self.row else { return "not run".into() };
        match self.measurements().count() {
            n if n > 0 && n < self.rows.len() => format!("ok in {n} of {}", self.rows.len()),
            _ => row.status.to_string(),
        }
    }

    /// Estimated bytes at the cell's highest moment.
    pub fn estimate(&self) -> u64 {
        self.row.map_or_else(|| self.cell.estimate(), |row| row.estimate).total()
    }

    pub fn estimate_over_measured(&self) -> Option<f64> {
        let peak = self.measured()?.memory.live_peak;
        (peak > 0).then(|| self.estimate() as f64 / peak as f64)
    }
}

fn of_its_end(row: &Row) -> Option<&Measurement> {
    row.measurement.as_ref().filter(|_| row.status == Status::Ok)
}

impl<'a> Comparison<'a> {
    pub fn new(recipe: &'a Recipe, rows: &'a [Row]) -> Self {
        let mut settings: Vec<Settings> = recipe.cells.iter().map(Cell::settings).collect();
        for (settings, device) in settings.iter_mut().zip(&recipe.devices) {
            settings.insert(DEVICE_NAME.into(), device.as_str().into());
        }
        let swept = recipe.swept_keys().to_vec();
        let (mut sizes, methods): (Vec<String>, Vec<String>) =
            swept.iter().cloned().partition(|key| is_size(key));
        sizes.sort_by_key(|key| keys::place(key));
        // A key that only one kind of network has distinguishes no sizes.
        sizes.retain(|key| settings.iter().all(|s| s.contains_key(key)) || !goes_along(key, &settings));
        sizes.extend((!recipe.devices.is_empty()).then(|| DEVICE_NAME.into()));
        let mut methods: Vec<String> =
            methods.into_iter().filter(|key| !goes_along(key, &settings)).collect();

        let mut of_methods = settings.clone();
        operators::as_one(&mut methods, &recipe.cells, &mut of_methods);
        let (shape_of, shape_first) = group(&settings, &sizes);
        let (method_of, method_first) = group(&of_methods, &methods);
        let label_sizes =
            label_sizes(&sizes, &settings[0], shape_first.len(), |keys| group(&settings, keys).1.len());
        let of_problem: Vec<String> = sizes.iter().filter(|key| !keys::is_repetition(key)).cloned().collect();
        let (problem_of, _) = group(&settings, &of_problem);
        let shapes = shape_first
            .iter()
            .map(|&i| CellShape {
                label: labels::shape_label(&label_sizes, &settings[i]),
                settings: settings[i].clone(),
                problem: problem_of[i],
            })
            .collect();
        let ladder = &recipe.report.ladder;
        let (methods, shared) = if !ladder.is_empty() && method_first.len() == ladder.len() {
            (ladder.iter().map(|stage| stage.stage.clone()).collect(), String::new())
        } else {
            labels::methods(&methods, &method_first.iter().map(|&i| &of_methods[i]).collect::<Vec<_>>())
        };

        let found = find_rows(recipe, rows);
        // Of each shape the first of its cells.
        let mut baselines: HashMap<usize, usize> = HashMap::new();
        for i in (0..settings.len()).filter(|&i| matches(&settings[i], &recipe.report.baseline)) {
            baselines.entry(shape_of[i]).or_insert(i);
        }
        let lines: Vec<Line> = settings
            .into_iter()
            .enumerate()
            .map(|(i, settings)| Line {
                cell: &recipe.cells[i],
                published: recipe.report.published.iter().find(|p| matches(&settings, &p.cell)),
                settings,
                shape: shape_of[i],
                method: method_of[i],
                row: found[i]
                    .iter()
                    .copied()
                    .find(|row| row.status == Status::Ok)
                    .or(found[i].first().copied()),
                rows: found[i].clone(),
                baseline: baselines.get(&shape_of[i]).copied(),
            })
            .collect();
        let (frame, crossings) = Frame::of_cells(&lines);
        let verified = Vec::new();
        Self { recipe, swept, sizes, label_sizes, shapes, methods, shared, lines, frame, crossings, verified }
    }

    /// Adds [`TRACES`] of the lines that were traced.
    pub fn add_traces(&mut self, timelines: &Timelines) {
        self.frame.add("", TRACES, self.lines.len(), |line| timelines.summary(line));
    }

    /// Whether all measured cells have a sampler: their steps are not alike.
    pub fn with_samplers(&self) -> bool {
        let mut measured = self.lines.iter().filter_map(Line::measured).peekable();
        measured.peek().is_some() && measured.all(|m| m.loading.is_some())
    }

    /// What sentences count: `seed` where the seed alone is repeated, `shape` otherwise.
    pub fn repeated(&self) -> &'static str {
        let [only] = self.sizes.as_slice() else { return "shape" };
        if keys::is_repetition(only) { "seed" } else { "shape" }
    }

    /// How many problems there are.
    pub fn problems(&self) -> usize {
        self.shapes.iter().map(|shape| shape.problem + 1).max().unwrap_or(0)
    }

    /// The problem of a shape.
    pub fn problem(&self, shape: usize) -> usize {
        self.shapes[shape].problem
    }

    /// The lines of a method at a problem: one, or one for each repetition.
    pub fn of_problem(&self, problem: usize, method: usize) -> Vec<usize> {
        let of = |i: &usize| {
            let Line { shape, method: own, .. } = self.lines[*i];
            own == method && self.shapes[shape].problem == problem
        };
        (0..self.lines.len()).filter(of).collect()
    }

    /// Cells of one method at one problem, in the order of the problems.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (i, line) in self.lines.iter().enumerate() {
            groups.entry((self.problem(line.shape), line.method)).or_default().push(i);
        }
        let group = |((problem, method), lines)| Group { problem, method, lines };
        let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
        groups.sort_by_key(|group| (group.problem, group.lines[0]));
        groups
    }

    /// The median of a group's cells.
    pub fn of_group(&self, column: &str, group: &Group) -> Option<f64> {
        self.frame.of_rows(column, group.lines.iter().copied()).median()
    }

    /// Each process's value of a column, of all of these lines.
    pub fn over_processes(&self, column: &str, lines: &[usize]) -> Vec<f64> {
        let of = columns::named(column);
        let lines = lines.iter().map(|&i| &self.lines[i]);
        lines.flat_map(|line| line.rows.iter().filter_map(|row| of(&line.of_process(row)))).collect()
    }

    /// The sizes of a problem without what repeats it; empty where that is all that tells the shapes apart.
    pub fn problem_label(&self, problem: usize) -> String {
        let shapes = || self.shapes.iter().filter(|shape| shape.problem == problem);
        let first = shapes().next().expect("a problem has a shape");
        let keys: Vec<String> =
            self.label_sizes.iter().filter(|key| !keys::is_repetition(key)).cloned().collect();
        match shapes().count() {
            1 => first.label.clone(),
            _ if keys.is_empty() => String::new(),
            _ => labels::shape_label(&keys, &first.settings),
        }
    }

    pub fn is_baseline(&self, line: usize) -> bool {
        self.lines[line].baseline == Some(line)
    }

    pub fn of_method(&self, method: usize) -> impl Iterator<Item = usize> {
        (0..self.lines.len()).filter(move |&i| self.lines[i].method == method)
    }

    pub fn of_shape(&self, shape: usize) -> impl Iterator<Item = usize> {
        (0..self.lines.len()).filter(move |&i| self.lines[i].shape == shape)
    }

    /// Headings and texts that name a cell: sizes and method, those of them that vary.
    pub fn naming(&self, line: usize) -> Vec<(&'static str, String)> {
        let Line { shape, method, .. } = self.lines[line];
        let (shapes, methods) = (self.shapes.len() > 1, self.methods.len() > 1);
        let size = shapes.then(|| ("sizes", self.shapes[shape].label.clone()));
        let method = (methods || !shapes).then(|| ("method", self.methods[method].clone()));
        size.into_iter().chain(method).collect()
    }

    /// The lines that have a value in a column.
    pub fn having(&self, name: &str) -> impl Iterator<Item = usize> {
        (0..self.lines.len()).filter(move |&i| self.frame.get(name, i).is_some())
    }

    /// A table of `tables.toml`; `None` without a line of it.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.table_with(name, |line| self.naming(line))
    }

    /// The same with other texts before a line's numbers.
    pub fn table_with(
        &self,
        name: &str,
        texts: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Option<Table> {
        let Defined { of, caption, columns } = Defined::named(name);
        let has_backward = self.having("backward_s_median").next().is_some();
        let column = |name: &'static String| match name.as_str() {
            // A step is its forward.
            "backward_vs_baseline" | "forward_vs_baseline" if !has_backward => "step_vs_baseline",
            name => name,
        };
        let columns: Vec<&str> = columns.iter().map(column).unique().collect();
        // Cells of one shape stand together, whichever table of the grid they are of.
        let lines = self.having(of).sorted_by_key(|&line| self.lines[line].shape);
        Table::new(caption, lines.map(|line| (texts(line), line)), &self.frame, &columns)
    }

    /// A table with several rows a line: the line, texts after its name, and what the columns are computed of.
    pub fn table_of<R>(
        &self,
        caption: &str,
        columns: &[Column<NumberOf<R>>],
        rows: impl Iterator<Item = (usize, Vec<(&'static str, String)>, R)>,
    ) -> Option<Table> {
        let (texts, rows): (Vec<_>, Vec<R>) =
            rows.map(|(line, texts, row)| ([self.naming(line), texts].concat(), row)).unzip();
        let mut frame = Frame::default();
        frame.add("", columns, rows.len(), |i| Some(&rows[i]));
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        Table::new(caption, texts.into_iter().zip(0..), &frame, &names)
    }

    /// `level 1 at 16×128, 512`, without what there is only one of.
    pub fn name(&self, line: &Line) -> String {
        let (shape, method) = (&self.shapes[line.shape].label, &self.methods[line.method]);
        match (self.shapes.len() > 1, self.methods.len() > 1) {
            (true, false) => shape.clone(),
            (false, _) => method.clone(),
            (true, true) => format!("{method} at {shape}"),
        }
    }
}

/// What a column shows of one row.
type NumberOf<R> = fn(&R) -> Option<f64>;

/// The rows of each cell, one for each of its processes: the last one with the same settings.
fn find_rows<'a>(recipe: &Recipe, rows: &'a [Row]) -> Vec<Vec<&'a Row>> {
    let apart = !recipe.devices.is_empty();
    let name = |settings: Settings, device: &str| {
        (format!("{:?}", recipe.apart_from_device(settings)), if apart { device.to_string() } else { String::new() })
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
    let of = settings.iter().enumerate().map(|(i, settings)| {
        *groups.entry(keys.iter().map(|key| settings.get(key)).collect()).or_insert_with(|| {
            first.push(i);
            first.len() - 1
        })
    });
    (of.collect(), first)
}

/// Up to three sizes, and more while two shapes would share a label; where none differs, the first that every
/// recipe must write. What a preset or the tokenizer decides comes last.
fn label_sizes(
    sizes: &[String],
    first: &Settings,
    shapes: usize,
    distinct: impl Fn(&[String]) -> usize,
) -> Vec<String> {
    if sizes.is_empty() {
        let must = |entry: &&keys::Entry| {
            entry.key.default.is_required() && entry.is_of(first) && first.contains_key(&entry.path)
        };
        let usual = keys::all().iter().filter(|entry| is_size(&entry.path)).filter(must);
        return usual.take(3).map(|entry| entry.path.clone()).collect();
    }
    let follows = |key: &&String| deciders(key).any(|leader| sizes.iter().any(|size| size == leader));
    let (last, first): (Vec<&String>, Vec<&String>) = sizes.iter().partition(follows);
    let mut shown: Vec<String> = first.iter().take(3).copied().cloned().collect();
    for key in first.into_iter().skip(3).chain(last) {
        if distinct(&shown) == shapes {
            break;
        }
        shown.push(key.clone());
    }
    shown
}
