//! [`Ratio`]: how many times as long one method takes as another, with its 95 % interval over processes.

use std::collections::BTreeSet;
use std::fmt;

use super::pareto;
use super::prelude::*;
use super::statistics::ratio_half_width;
use crate::common::text::grouped;
use crate::measure::Samples;

/// A step that is longer by at most this share, by all of its interval, counts as no cost.
const NO_COST: f64 = 0.05;

/// The ratio of two methods' values, such as the times of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of medians over processes.
    pub value: f64,
    /// Half of the interval.
    pub half: Spread,
}

/// Half of an interval, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    Known(f64),
    /// One side ran in a single process.
    OneProcess,
    /// The sides were measured by different builds of the runner.
    OtherBuild,
}

impl Ratio {
    /// Of times: of a step, or where samplers make steps of unequal work of a real token. `None` where one was not measured.
    pub fn of_times(comparison: &Comparison, own: &Group, base: &Group) -> Option<Self> {
        Self::new(comparison, pareto::time(comparison), own, base)
    }

    /// Of the values of a column.
    pub fn new(comparison: &Comparison, column: &str, own: &Group, base: &Group) -> Option<Self> {
        let [times, others] = [own, base].map(|group| comparison.over_processes(column, &group.lines));
        let median = |values: &[f64]| Some(Samples::of(values.to_vec())?.median);
        let value = median(&times)? / median(&others)?;
        let half = match ratio_half_width(&times, &others) {
            _ if builds(comparison, own.lines.iter().chain(&base.lines)).len() > 1 => Spread::OtherBuild,
            Some(half) => Spread::Known(half * value),
            None => Spread::OneProcess,
        };
        Some(Self { value, half })
    }

    /// Whether all of the interval is above 1 by less than a cost, or below it.
    pub fn is_no_cost(self) -> bool {
        matches!(self.half, Spread::Known(half) if self.value + half <= 1.0 + NO_COST)
    }

    pub fn is_shorter(self) -> bool {
        matches!(self.half, Spread::Known(half) if self.value + half < 1.0)
    }

    pub fn is_known(self) -> bool {
        matches!(self.half, Spread::Known(_))
    }

    /// `1.16`, `80.0`
    pub fn value_alone(self) -> String {
        let text = if self.value < 9.995 { Unit::Ratio } else { Unit::Number }.write(self.value);
        text.trim_end_matches('x').into()
    }

    /// The value with its interval, or why there is none.
    fn parts(self) -> (String, &'static str) {
        let value = self.value_alone();
        match self.half {
            Spread::Known(half) => {
                // Two decimals, and as many as show a digit of the half width.
                let of_value = value.rsplit_once('.').map_or(0, |(_, decimals)| decimals.len());
                let of_half = if half > 0.0 { (-half.log10()).ceil().max(0.0) as usize } else { 0 };
                let decimals = of_value.max(of_half.min(4));
                (format!("{:.decimals$} ± {half:.decimals$}", self.value), "")
            }
            Spread::OneProcess => (value, " (1 process)"),
            Spread::OtherBuild => (value, " (other build)"),
        }
    }

    /// `1.16 ± 0.02 times as long`, `1.16 times as long (1 process)`
    pub fn times(self, what: &str) -> String {
        let (value, mark) = self.parts();
        format!("{value} times {what}{mark}")
    }
}

/// `1.16 ± 0.02`, `1.16 (1 process)`
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, mark) = self.parts();
        write!(f, "{value}{mark}")
    }
}

/// A value with a relative half width: `92,761 ± 1,200`, `12.3 ± 0.2 ms`.
pub fn with_half_width(unit: Unit, value: f64, half: Option<f64>) -> String {
    let text = unit.write(value);
    let Some(half) = half else { return text };
    let (number, name) = text.split_once(' ').unwrap_or((&text, ""));
    let scale = number.replace(',', "").parse::<f64>().map_or(1.0, |shown| value / shown);
    let decimals = number.rsplit_once('.').map_or(0, |(_, decimals)| decimals.len());
    let half = half * value / scale;
    let half = if decimals == 0 { grouped(format!("{half:.0}")) } else { format!("{half:.decimals$}") };
    format!("{number} ± {half} {name}").trim_end().into()
}

/// The builds of the lines' rows, by their commits where these are known.
pub fn builds<'i>(comparison: &Comparison, lines: impl IntoIterator<Item = &'i usize>) -> BTreeSet<String> {
    let rows = lines.into_iter().flat_map(|&i| &comparison.lines[i].rows);
    rows.map(|row| match (&row.environment.commit, &row.environment.build) {
        (commit, build) if commit.is_empty() => build.clone(),
        (commit, _) => commit.clone(),
    })
    .collect()
}

#[cfg(test)]
#[path = "interval_tests.rs"]
mod tests;
