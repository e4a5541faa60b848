//! [`Basis`]: whether bars show values or ratios, and what a ratio is to.
//!
//! Where the shapes' values differ ten-fold or more, each shape is drawn relative to its baseline:
//! a common scale would hide the small ones and a logarithmic one would falsify the lengths.

use super::super::table::Comparison;

/// Shapes that differ by this factor are drawn relative.
const APART: f64 = 10.0;

pub struct Basis<'c, 'a> {
    comparison: &'c Comparison<'a>,
    pub relative: bool,
    /// Of each shape that has a measured cell, what its values are divided by: those of its baseline, or of its first
    /// measured cell; and the line that it is of.
    references: Vec<Option<(f64, usize)>>,
}

impl<'c, 'a> Basis<'c, 'a> {
    /// `total` is the value of a line that was measured.
    pub fn new(comparison: &'c Comparison<'a>, total: impl Fn(usize) -> Option<f64>) -> Self {
        let reference = |shape: usize| {
            let baseline = comparison.of_shape(shape).find(|&i| comparison.is_baseline(i));
            let lines = baseline.into_iter().chain(comparison.of_shape(shape));
            lines.filter_map(|i| Some((total(i)?, i))).find(|(value, _)| *value > 0.0)
        };
        let references: Vec<Option<(f64, usize)>> = (0..comparison.shapes.len()).map(reference).collect();
        let values = || references.iter().flatten().map(|(value, _)| *value);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        Self { comparison, relative: high >= APART * low, references }
    }

    /// What a shape's values are divided by; `None` when they would be relative to nothing.
    pub fn divisor(&self, shape: usize) -> Option<f64> {
        if self.relative { self.references[shape].map(|(value, _)| value) } else { Some(1.0) }
    }

    /// Whether a shape is relative to a cell that is no baseline.
    fn has_star(&self, shape: usize) -> bool {
        self.relative && self.references[shape].is_some_and(|(_, line)| !self.comparison.is_baseline(line))
    }

    /// The shape's label, with a star where the note speaks of it.
    pub fn label(&self, shape: usize) -> String {
        format!("{}{}", self.comparison.shapes[shape].label, if self.has_star(shape) { " *" } else { "" })
    }

    /// The axis' title.
    pub fn axis(&self, quantity: &str, unit: &str) -> String {
        if !self.relative {
            return format!("{quantity} in {unit}");
        }
        let mut lines = self.references.iter().flatten().map(|(_, line)| *line);
        let baseline = lines.find(|&line| self.comparison.is_baseline(line));
        let method = baseline.map(|line| self.comparison.lines[line].method);
        let to = method.map_or("the first measured method", |method| &self.comparison.methods[method]);
        format!("{quantity} relative to {to} at the same sizes")
    }

    /// What the caption adds.
    pub fn note(&self) -> String {
        let mut note = String::new();
        if self.relative {
            note += " Each shape is drawn relative to its baseline, since they differ ten-fold or more.";
            if (0..self.references.len()).any(|shape| self.has_star(shape)) {
                note += " * The baseline has no measurement: relative to the first method that has.";
            }
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{bad_row, ok_row, recipe};
    use super::*;
    use crate::row::Status;

    #[test]
    fn shapes_far_apart_are_relative_to_their_baselines() {
        let recipe = recipe("[grid]\n\"train.batch_size\" = [1, 20]\n\"checkpoint.level\" = [0, 1]\n");
        let basis = |peaks: [u64; 4]| {
            let rows: Vec<_> = recipe
                .cells
                .iter()
                .zip(peaks)
                .map(|(cell, peak)| match peak {
                    0 => bad_row(cell, Status::Oom, "too large"),
                    peak => ok_row(cell, 1.0, 2.0, peak),
                })
                .collect();
            let comparison = Comparison::new(&recipe, &rows);
            let basis =
                Basis::new(&comparison, |i| Some(comparison.lines[i].measured()?.memory.live_peak as f64));
            (basis.relative, basis.divisor(0), basis.divisor(1), basis.label(1))
        };
        let label = |star: &str| format!("batch size 20{star}");
        assert_eq!(basis([10, 8, 90, 70]), (false, Some(1.0), Some(1.0), label("")));
        assert_eq!(basis([10, 8, 100, 70]), (true, Some(10.0), Some(100.0), label("")));
        assert_eq!(basis([5, 4, 0, 70]), (true, Some(5.0), Some(70.0), label(" *")));
        assert_eq!(basis([0, 0, 0, 0]), (false, Some(1.0), Some(1.0), label("")));
    }
}
