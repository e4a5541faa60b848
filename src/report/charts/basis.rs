//! [`Basis`]: whether bars show values or ratios, and what a ratio is to.
//!
//! Where the sizes' values differ ten-fold or more, each is drawn relative to its baseline: a common scale would hide the
//! small ones and a logarithmic one would falsify the lengths.

use super::super::table::{Comparison, Group};

/// Sizes that differ by this factor are drawn relative.
const APART: f64 = 10.0;

pub struct Basis<'c, 'a> {
    comparison: &'c Comparison<'a>,
    pub relative: bool,
    /// Of each problem that has a measured cell, what its values are divided by: those of its baseline, or of its first
    /// measured method; and which method that is, and whether it is the baseline.
    references: Vec<Option<(f64, usize, bool)>>,
}

impl<'c, 'a> Basis<'c, 'a> {
    /// `total` is the value of a group that was measured.
    pub fn new(
        comparison: &'c Comparison<'a>,
        groups: &[Group],
        total: impl Fn(&Group) -> Option<f64>,
    ) -> Self {
        let reference = |problem: usize| {
            let own = || groups.iter().filter(|group| group.problem == problem);
            let is_base = |group: &&Group| comparison.is_baseline(group.lines[0]);
            let found = own().find(is_base).into_iter().chain(own());
            let mut values = found.filter_map(|group| Some((total(group)?, group.method, is_base(&group))));
            values.find(|(value, ..)| *value > 0.0)
        };
        let references: Vec<_> = (0..comparison.problems()).map(reference).collect();
        let values = || references.iter().flatten().map(|(value, ..)| *value);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        Self { comparison, relative: high >= APART * low, references }
    }

    /// What a problem's values are divided by; `None` when they would be relative to nothing.
    pub fn divisor(&self, problem: usize) -> Option<f64> {
        if self.relative { self.references[problem].map(|(value, ..)| value) } else { Some(1.0) }
    }

    /// Whether a problem is relative to a method that is no baseline.
    fn has_star(&self, problem: usize) -> bool {
        self.relative && self.references[problem].is_some_and(|(.., is_base)| !is_base)
    }

    /// The problem's label, with a star where the note speaks of it.
    pub fn label(&self, problem: usize) -> String {
        format!(
            "{}{}",
            self.comparison.problem_label(problem),
            if self.has_star(problem) { " *" } else { "" }
        )
    }

    /// The axis' title.
    pub fn axis(&self, quantity: &str, unit: &str) -> String {
        if !self.relative {
            return format!("{quantity} in {unit}");
        }
        let mut bases = self.references.iter().flatten().filter(|(.., is_base)| *is_base);
        let to = bases
            .next()
            .map_or("the first measured method", |(_, method, _)| &self.comparison.methods[*method]);
        format!("{quantity} relative to {to} at the same sizes")
    }

    /// What the caption adds.
    pub fn note(&self) -> String {
        let mut note = String::new();
        if self.relative {
            note += " Each shape is drawn relative to its baseline, since they differ ten-fold or more.";
            if (0..self.references.len()).any(|problem| self.has_star(problem)) {
                note += " * The baseline has no measurement: relative to the first method that has.";
            }
        }
        note
    }
}
