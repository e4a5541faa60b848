//! [`Basis`]: whether bars show values or ratios, and what a ratio is to.
//!
//! Where the shapes' values differ ten-fold or more, each shape is drawn relative to its baseline:
//! a common scale would hide the small ones and a logarithmic one would falsify the lengths.

use super::super::table::Comparison;

/// Shapes that differ by this factor are drawn relative.
const APART: f64 = 10.0;

pub struct Basis {
    pub relative: bool,
    /// Of each shape that has a measured cell.
    references: Vec<Option<Reference>>,
}

/// What a shape's values are divided by: those of its baseline, or of its first measured method.
struct Reference {
    value: f64,
    method: usize,
    is_baseline: bool,
}

impl Basis {
    /// `total` is the value of a line that was measured.
    pub fn new(comparison: &Comparison, total: impl Fn(usize) -> Option<f64>) -> Self {
        let reference = |shape: usize| {
            let lines = &comparison.lines;
            let of_shape = || (0..lines.len()).filter(|&i| lines[i].shape == shape);
            let baseline = of_shape().find(|&i| comparison.is_baseline(i));
            baseline.into_iter().chain(of_shape()).find_map(|i| {
                let value = total(i).filter(|value| *value > 0.0)?;
                Some(Reference { value, method: lines[i].method, is_baseline: baseline == Some(i) })
            })
        };
        let references: Vec<Option<Reference>> = (0..comparison.shapes.len()).map(reference).collect();
        let values = || references.iter().flatten().map(|reference| reference.value);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        Self { relative: high >= APART * low, references }
    }

    /// What a shape's values are divided by; `None` when they would be relative to nothing.
    pub fn divisor(&self, shape: usize) -> Option<f64> {
        if self.relative { self.references[shape].as_ref().map(|r| r.value) } else { Some(1.0) }
    }

    /// The shape's label, with a star where the note speaks of it.
    pub fn label(&self, comparison: &Comparison, shape: usize) -> String {
        let star = self.relative && self.references[shape].as_ref().is_some_and(|r| !r.is_baseline);
        format!("{}{}", comparison.shapes[shape].label, if star { " *" } else { "" })
    }

    /// The axis' title.
    pub fn axis(&self, comparison: &Comparison, quantity: &str, unit: &str) -> String {
        if !self.relative {
            return format!("{quantity} in {unit}");
        }
        let baseline = self.references.iter().flatten().find(|reference| reference.is_baseline);
        let to = baseline.map_or("the first measured method", |r| &comparison.methods[r.method]);
        format!("{quantity} relative to {to} at the same sizes")
    }

    /// What the caption adds.
    pub fn note(&self) -> String {
        let mut note = String::new();
        if self.relative {
            note += " Each shape is drawn relative to its baseline, since they differ ten-fold or more.";
            if self.references.iter().flatten().any(|r| !r.is_baseline) {
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
            (basis.relative, basis.divisor(0), basis.divisor(1), basis.label(&comparison, 1))
        };
        let label = |star: &str| format!("batch size 20{star}");
        assert_eq!(basis([10, 8, 90, 70]), (false, Some(1.0), Some(1.0), label("")));
        assert_eq!(basis([10, 8, 100, 70]), (true, Some(10.0), Some(100.0), label("")));
        assert_eq!(basis([5, 4, 0, 70]), (true, Some(5.0), Some(70.0), label(" *")));
        assert_eq!(basis([0, 0, 0, 0]), (false, Some(1.0), Some(1.0), label("")));
    }
}
