//! [`Frame`]: Polars columns with their headings and units; and the files of the cells' frame.

use std::collections::BTreeMap;

use itertools::Itertools;
use polars::prelude::*;

use super::columns::{CELLS, CROSSINGS, Column as Defined, MORE, MORE_RATIOS, Of, OfLine, Over, RATIOS};
use super::learning::{Learned, equal_loss};
use super::line::Line;
use super::units::Unit;
use crate::measure::{Direction, Phase, Samples};
use crate::row::Row;

/// The column of the seconds to the training loss that every cell reached.
pub const EQUAL_LOSS: &str = "equal_loss_s";

/// Whether a cell was measured on a CPU; `None` of one that was not measured.
fn is_on_cpu(line: &Line) -> Option<bool> {
    line.measured().and(line.row).map(Row::is_on_cpu)
}

/// Numbers in rows and named columns; a missing one is null.
#[derive(Default)]
pub struct Frame {
    columns: BTreeMap<String, Shown>,
    /// Names of the columns of what crossed the bus, of the phases and directions that any cell has.
    pub crossings: Vec<String>,
}

/// A column with its heading and unit.
struct Shown {
    heading: &'static str,
    unit: Unit,
    values: Float64Chunked,
}

impl Frame {
    /// Every column of the cells.
    pub fn of_cells(lines: &[Line]) -> Self {
        let (mut frame, height) = (Self::default(), lines.len());
        frame.add_cells(CELLS, lines);
        frame.add_cells(MORE, lines);
        let rows = |of: &dyn Fn(&Line) -> Option<usize>| -> IdxCa {
            lines.iter().map(|line| of(line).map(|i| i as IdxSize)).collect()
        };
        let baseline = rows(&|line| line.baseline);
        let one_process = rows(&|line| line.baseline.filter(|&base| lines[base].cell.parallel.is_alone()));
        let equal = equal_loss(lines);
        let time = |line: &Line| Learned::of(line)?.time_to(equal?);
        frame.insert(EQUAL_LOSS, "to equal loss", Unit::Seconds, lines.iter().map(time).collect());
        let mixed = lines.iter().any(|line| is_on_cpu(line) == Some(false));
        let cpu = |line: &Line| {
            let full = |of: &Line| is_on_cpu(of) == Some(true) && !of.cell.offload.moves();
            lines.iter().position(|of| mixed && of.shape == line.shape && full(of))
        };
        frame.add_ratio("step_vs_cpu", "× full CPU", &["step_s_median"], &rows(&cpu));
        frame.add_ratio("speedup", "× one process", &["tokens_per_second"], &one_process);
        let efficiency = frame.column("speedup") / frame.column("ranks");
        frame.insert("scaling_efficiency", "scaling efficiency", Unit::Share, efficiency);
        for (name, heading, of) in RATIOS.iter().chain(MORE_RATIOS) {
            frame.add_ratio(name, heading, of, &baseline);
        }
        for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer] {
            for (direction, name) in [(Direction::ToDevice, "to_device"), (Direction::ToHost, "to_host")] {
                let crossing = |i: usize| {
                    let mut crossings = lines[i].measured()?.crossings.iter();
                    crossings.find(|c| (c.phase, c.direction) == (phase, direction))
                };
                if (0..height).any(|i| crossing(i).is_some()) {
                    let prefix = format!("{phase}_{name}_");
                    frame.add(&prefix, CROSSINGS, height, crossing);
                    frame.crossings.extend(CROSSINGS.iter().map(|column| format!("{prefix}{}", column.name)));
                }
            }
        }
        frame
    }

    /// Computes `columns` of each cell: of each of its processes, and then over them.
    pub fn add_cells(&mut self, columns: &[Defined<OfLine>], lines: &[Line]) {
        let processes = lines.iter().map(|line| {
            let several = line.rows.iter().filter(|_| line.rows.len() > 1);
            several.map(|row| line.of_process(row)).collect_vec()
        });
        let processes = processes.collect_vec();
        for column in columns {
            let value = |(line, processes): (&Line, &Vec<Line>)| {
                if processes.is_empty() || column.over == Over::Whole {
                    return (column.of)(line);
                }
                let all = Samples::of(processes.iter().filter_map(column.of).collect())?;
                Some(match column.over {
                    Over::Least => all.min,
                    Over::Most => all.max,
                    Over::Median | Over::Whole => all.median,
                })
            };
            let values = lines.iter().zip(&processes).map(value).collect();
            self.insert(column.name, column.heading, column.unit, values);
        }
    }

    /// Computes `columns` of `height` rows, their names behind a prefix.
    pub fn add<'r, R: 'r>(
        &mut self,
        prefix: &str,
        columns: &[Defined<Of<R>>],
        height: usize,
        row: impl Fn(usize) -> Option<&'r R>,
    ) {
        for column in columns {
            let values = (0..height).map(|i| row(i).and_then(column.of)).collect();
            self.insert(&format!("{prefix}{}", column.name), column.heading, column.unit, values);
        }
    }

    /// Each row's value over its baseline's, in the first of the columns `of` that both have.
    pub fn add_ratio(&mut self, name: &str, heading: &'static str, of: &[&str], baseline: &IdxCa) {
        let ratio = |own: &&str| {
            let own = self.column(own);
            let ratio: Float64Chunked = own / &own.take(baseline).expect("baselines are rows");
            // Nothing is a part of zero.
            ratio.apply(|ratio| ratio.filter(|ratio| ratio.is_finite()))
        };
        let first = |a: Float64Chunked, b: Float64Chunked| a.zip_with(&a.is_not_null(), &b);
        let ratios = of.iter().map(ratio).reduce(|a, b| first(a, b).expect("columns of one length"));
        self.insert(name, heading, Unit::Ratio, ratios.expect("a ratio is of a column"));
    }

    fn insert(&mut self, name: &str, heading: &'static str, unit: Unit, values: Float64Chunked) {
        let values = values.with_name(name.into());
        self.columns.insert(name.into(), Shown { heading, unit, values });
    }

    /// # Panics
    /// Without a column of this name.
    pub fn column(&self, name: &str) -> &Float64Chunked {
        &self.columns[name].values
    }

    pub fn get(&self, name: &str, row: usize) -> Option<f64> {
        self.column(name).get(row).filter(|value| value.is_finite())
    }

    /// Whether a row's value says something: a ratio of 1, of its own baseline, and one process do not.
    pub fn says(&self, name: &str, row: usize) -> bool {
        let alone =
            self.unit(name) == Unit::Ratio && self.heading(name).starts_with('×') || name == "processes";
        self.get(name, row).is_some_and(|value| !(alone && value == 1.0))
    }

    /// The values of a column in some of the rows, without those that are missing.
    pub fn of_rows(&self, name: &str, rows: impl IntoIterator<Item = usize>) -> Float64Chunked {
        rows.into_iter().filter_map(|row| self.get(name, row)).map(Some).collect()
    }

    /// A value for a reader.
    pub fn written(&self, name: &str, row: usize) -> Option<String> {
        Some(self.unit(name).write(self.get(name, row)?))
    }

    pub fn heading(&self, name: &str) -> &'static str {
        self.columns[name].heading
    }

    pub fn unit(&self, name: &str) -> Unit {
        self.columns[name].unit
    }

    /// A column as files hold it.
    pub fn exported(&self, name: &str) -> Column {
        let dtype = if self.unit(name).is_whole() { DataType::UInt64 } else { DataType::Float64 };
        self.column(name).clone().into_column().cast(&dtype).expect("numbers are numbers")
    }
}
