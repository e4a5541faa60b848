//! [`Comparison`]: the rows of a recipe arranged for comparing. Cells of equal sizes are a *shape*; cells of one shape differ in
//! their *method*; each is compared with its shape's baseline.

mod arrange;

use std::borrow::Borrow;

use polars::prelude::ChunkQuantile;

use super::columns::{self, Column, Of};
use super::document::{Defined, Text};
use super::frame::Frame;
use super::labels;
use super::prelude::*;
use super::tried::Tried;
use crate::recipe::{Recipe, keys};
use crate::row::Record;
pub use arrange::budgets;

/// The size that distinguishes results of several devices. No recipe has it.
pub const DEVICE_NAME: &str = "device name";

/// The cells of a recipe in its order, with their rows, shapes, methods and baselines.
pub struct Comparison<'a> {
    pub recipe: &'a Recipe,
    /// The swept keys that are sizes, in reading order.
    pub sizes: Vec<String>,
    /// The sizes that shape labels show: enough of them to distinguish the shapes.
    pub label_sizes: Vec<String>,
    /// Whether sizes are those of a whole step, however its sequences divide into micro-batches.
    pub of_steps: bool,
    pub shapes: Vec<CellShape>,
    /// Labels of the methods, in order of appearance.
    pub methods: Vec<String>,
    /// The methods that another learning rate beats, and those whose rate is at an end of those tried.
    pub tried: Tried,
    pub lines: Vec<Line<'a>>,
    /// [`columns::CELLS`] and the like, a row a line.
    pub frame: Frame,
    /// What `runner verify` saved with the rows.
    pub verified: Vec<Record>,
}

/// Cells of equal sizes.
pub struct CellShape {
    /// In tables.
    pub label: String,
    /// In sentences and charts.
    pub name: String,
    /// The settings of the shape's first cell; sizes are those of a whole step where the comparison's are.
    pub settings: Settings,
    /// The problem: shapes that differ only in a repetition, such as the seed, share one.
    pub problem: usize,
}

/// Cells of one method at one problem: one, or one for each repetition, such as a seed.
#[derive(Clone)]
pub struct Group {
    pub problem: usize,
    pub method: usize,
    pub lines: Vec<usize>,
}

impl<'a> Comparison<'a> {
    /// The meaning of bare numbers in labels; `None` where labels have names.
    pub fn size_note(&self) -> Option<String> {
        let keys = &self.label_sizes;
        let of = if self.of_steps { " of a whole step" } else { "" };
        let one = (self.shapes.len() == 1 && !keys.is_empty()).then(|| &self.shapes[0].label);
        let legend = labels::is_product(keys).then(|| labels::size_legend(keys) + of);
        let (sizes, single) = match (one, legend) {
            (Some(one), Some(legend)) => (Some(format!("sizes of every cell: {one} ({legend})")), None),
            (Some(one), None) => (None, Some(format!("{one}{of}"))),
            (None, legend) => (legend.map(|legend| format!("sizes: {legend}")), None),
        };
        let fixed: Vec<String> = single.into_iter().chain(self.fixed_sizes()).collect();
        let every = (!fixed.is_empty()).then(|| format!("every cell: {}", fixed.join(", ")));
        let note = sizes.into_iter().chain(every).join("; ");
        (!note.is_empty()).then_some(note)
    }

    /// `sequence length 512`: sizes of a batch that no label has, where all cells have the same.
    fn fixed_sizes(&self) -> Vec<String> {
        let own = |key: &&str| !self.label_sizes.iter().any(|of| of == key);
        let value = |key: &str| {
            let mut values = self.lines.iter().map(|line| labels::size_value(key, &line.settings));
            let first = values.next()??;
            values.all(|value| value.as_ref() == Some(&first)).then_some(first)
        };
        let text = |key: &str| Some(format!("{} {}", labels::size_name(key), value(key)?));
        ["train.batch_size", "train.seq_len"].into_iter().filter(own).filter_map(text).collect()
    }

    /// Whether all measured cells have a sampler: their steps are not alike.
    pub fn with_samplers(&self) -> bool {
        let mut measured = self.lines.iter().filter_map(Line::measured).peekable();
        measured.peek().is_some() && measured.all(|m| m.loading.is_some())
    }

    /// Whether cells read the same samples in different ways.
    pub fn compares_samplers(&self) -> bool {
        self.with_samplers() && !self.lines.iter().map(|line| line.cell.data.sampler()).all_equal()
    }

    /// How many problems there are.
    pub fn problems(&self) -> usize {
        self.shapes.iter().map(|shape| shape.problem + 1).max().unwrap_or(0)
    }

    /// Cells of one method at one problem, in the order of the problems.
    pub fn groups(&self) -> Vec<Group> {
        let of_line = |&i: &usize| (self.shapes[self.lines[i].shape].problem, self.lines[i].method);
        let groups = (0..self.lines.len()).into_group_map_by(of_line).into_iter();
        let groups = groups.map(|((problem, method), lines)| Group { problem, method, lines });
        groups.sorted_by_key(|group| (group.problem, group.lines[0])).collect()
    }

    /// Those of them that are no learning rates which were tried alone.
    pub fn chosen(&self) -> Vec<Group> {
        let mut groups = self.groups();
        groups.retain(|group| !self.tried.left_out.contains(&group.method));
        groups
    }

    /// The median of a group's cells.
    pub fn of_group(&self, column: &str, group: &Group) -> Option<f64> {
        self.frame.of_rows(column, group.lines.iter().copied()).median()
    }

    /// The same for a reader.
    pub fn written_of_group(&self, column: &str, group: &Group) -> Option<String> {
        Some(self.frame.unit(column).write(self.of_group(column, group)?))
    }

    /// The values of a column in each process of these lines.
    pub fn over_processes(&self, column: &str, lines: &[usize]) -> Vec<f64> {
        let of = columns::named(column);
        let lines = lines.iter().map(|&i| &self.lines[i]);
        lines.flat_map(|line| line.rows.iter().filter_map(|row| of(&line.of_process(row)))).collect()
    }

    /// The sizes of a problem without repetitions; empty where shapes differ in these alone.
    pub fn problem_label(&self, problem: usize) -> String {
        let shapes = || self.shapes.iter().filter(|shape| shape.problem == problem);
        let first = shapes().next().expect("a problem has a shape");
        let keys: Vec<String> =
            self.label_sizes.iter().filter(|key| !keys::is_repetition(key)).cloned().collect();
        match shapes().count() {
            1 => first.name.clone(),
            _ if keys.is_empty() => String::new(),
            _ => labels::shape_name(&keys, &first.settings),
        }
    }

    pub fn is_baseline(&self, line: usize) -> bool {
        self.lines[line].baseline == Some(line)
    }

    /// Whether a group has its size's baseline.
    pub fn is_base(&self, group: &Group) -> bool {
        group.lines.iter().any(|&line| self.is_baseline(line))
    }

    /// The groups with a value in a column, by rising value.
    pub fn ranked<'g>(&self, column: &str, groups: impl IntoIterator<Item = &'g Group>) -> Vec<&'g Group> {
        let valued = groups.into_iter().filter_map(|group| Some((self.of_group(column, group)?, group)));
        valued.sorted_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, group)| group).collect()
    }

    /// The lines with a value in a column, by rising value.
    pub fn rising(&self, column: &str) -> Vec<usize> {
        let valued = self.having(column).filter_map(|line| Some((self.frame.get(column, line)?, line)));
        valued.sorted_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, line)| line).collect()
    }

    pub fn of_method(&self, method: usize) -> impl Iterator<Item = usize> {
        (0..self.lines.len()).filter(move |&i| self.lines[i].method == method)
    }

    /// Headings and texts that name a cell: sizes and method, as far as they vary.
    pub fn naming(&self, line: usize) -> Vec<Text> {
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

    /// A table of `tables.toml` with a row for each cell; `None` without one. Cells of one shape stand together, also those of
    /// different tables of the grid.
    pub fn table(&self, name: &str) -> Option<Table> {
        let Defined { of, caption, notes, columns, status, in_order } = Defined::named(name);
        let says = |column: &str| self.having(column).any(|line| self.frame.says(column, line));
        let notes = notes.iter().filter(|(columns, _)| columns.split(" and ").all(says));
        let caption = [caption].into_iter().chain(notes.map(|(_, note)| note)).join(" ");
        // A graph has no phases, so whole steps are compared.
        let has_backward = self.having("backward_s_median").count() == self.having("step_s_median").count();
        let column = |name: &'static String| match name.as_str() {
            // A step is its forward.
            "backward_vs_baseline" | "forward_vs_baseline" if !has_backward => "step_vs_baseline",
            name => name,
        };
        let columns: Vec<&str> = columns.iter().map(column).unique().collect();
        let status = *status && self.lines.iter().any(|line| line.status() != Status::Ok.to_string());
        let texts = |line: usize| {
            let status = status.then(|| ("status", self.lines[line].status()));
            (self.naming(line).into_iter().chain(status).collect(), line)
        };
        let order = |line: &usize| if *in_order { *line } else { self.lines[*line].shape };
        let lines = self.having(of).sorted_by_key(order);
        Table::new(&caption, lines.map(texts), &self.frame, &columns)
    }

    /// A table that may have several rows for a line. Each row: the line, texts after its name, and what its columns are
    /// computed from.
    pub fn table_of<T, R: Borrow<T>>(
        &self,
        name: &str,
        columns: &[Column<Of<T>>],
        rows: impl Iterator<Item = (usize, Vec<Text>, R)>,
    ) -> Option<Table> {
        let rows = rows.map(|(line, texts, row)| ([self.naming(line), texts].concat(), row));
        Table::of_rows(&Defined::named(name).caption, columns, rows)
    }

    /// `level 1 at 16×128, hidden size 512`, without the method or the sizes where there is only one.
    pub fn name(&self, line: &Line) -> String {
        self.named(self.said(line.method), &self.shapes[line.shape].name, self.shapes.len() > 1)
    }

    /// The same for a group.
    pub fn name_of_group(&self, group: &Group) -> String {
        self.named(self.said(group.method), &self.problem_label(group.problem), self.problems() > 1)
    }

    /// The same as a title, where nothing else stands around it.
    pub fn title(&self, line: &Line) -> String {
        let method = self.methods[line.method].clone();
        self.named(method, &self.shapes[line.shape].name, self.shapes.len() > 1)
    }

    /// A method in a sentence. One that could be read as a part of it is in quotation marks.
    pub fn said(&self, method: usize) -> String {
        let name = &self.methods[method];
        let is_clause = [", ", " that "].iter().any(|part| name.contains(part));
        if is_clause || ["no ", "without ", "+ "].iter().any(|start| name.starts_with(start)) {
            format!("“{name}”")
        } else {
            name.clone()
        }
    }

    fn named(&self, method: String, sizes: &str, several: bool) -> String {
        match (several && !sizes.is_empty(), self.methods.len() > 1) {
            (true, false) => sizes.into(),
            (false, _) => method,
            (true, true) => format!("{method} at {sizes}"),
        }
    }
}
