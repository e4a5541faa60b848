//! [`Basis`]: whether bars show values or ratios, and the reference of a ratio.
//!
//! Where the values of the sizes differ ten-fold or more, each is drawn relative to its baseline: a common scale would hide the
//! small ones, and a logarithmic scale would falsify the lengths.

use super::super::table::{Comparison, Group};

/// Sizes that differ by this factor are drawn relative.
const APART: f64 = 10.0;

pub struct Basis<'c, 'a> {
    comparison: &'c Comparison<'a>,
    pub relative: bool,
    /// For each problem with a measured cell, the value that others are divided by, of its baseline or of its first measured
    /// method; that method; and whether it is the baseline.
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

    /// The number that a problem's values are divided by; `None` where there is no reference.
    pub fn divisor(&self, problem: usize) -> Option<f64> {
        if self.relative { self.references[problem].map(|(value, ..)| value) } else { Some(1.0) }
    }

    /// Whether a problem is relative to a method that is not its baseline.
    fn has_star(&self, problem: usize) -> bool {
        self.relative && self.references[problem].is_some_and(|(.., is_base)| !is_base)
    }

    /// Whether a group's ratio is to its own baseline, as in the tables, or to what a star explains. Of several baselines a group
    /// has the one with the most equal settings.
    pub fn is_of_tables(&self, group: &Group) -> bool {
        let base =
            self.comparison.lines[group.lines[0]].baseline.map(|base| self.comparison.lines[base].method);
        match self.references[group.problem] {
            Some((_, method, true)) => base.is_none_or(|base| base == method),
            _ => true,
        }
    }

    /// The problem's label, with a star where the note explains it.
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

    /// Sentences for the caption.
    pub fn note(&self, groups: &[Group]) -> String {
        let mut note = String::new();
        if self.relative {
            note += " Each shape is drawn relative to its baseline, since they differ ten-fold or more.";
            if groups.iter().any(|group| !self.is_of_tables(group)) {
                note += " No ratio stands at a bar that the tables compare with another baseline.";
            }
            if (0..self.references.len()).any(|problem| self.has_star(problem)) {
                note += " * The baseline was not measured: relative to the first method that was.";
            }
        }
        note
    }
}
