//! Grouped bars of time by phase and of peak memory: a group for each problem, a bar for each method. Cells that differ in the
//! seed alone are one bar, of their median.
//!
//! Bars are horizontal, so that names and values of any length fit on their line.

mod drawing;

use super::super::table::{Comparison, Group};
use super::Chart;
use super::axis::{extent, from_zero};
use super::basis::Basis;
use super::canvas::Result;
use super::legend::NAMES;
use crate::words::text::ratio;

/// More bars than this are not readable on a page, and more with a name each.
const BARS: usize = 150;
const NAMED: usize = 48;
/// More sizes than this, each with its label, fill more than a page.
const SIZES: usize = 36;

/// A bar this many times as long as the median one is broken off a little beyond the longest other one, where there is a gap
/// between the two.
const FAR: f64 = 8.0;
const GAP: f64 = 3.0;
const BROKEN: f64 = 1.2;

/// One kind of bars.
#[derive(Clone)]
struct Bars<'c, 'a> {
    comparison: &'c Comparison<'a>,
    groups: Vec<Group>,
    /// Whether each bar has its method's name and not a colour: there are more methods than colours.
    named: bool,
    /// How many more there are.
    left_out: usize,
    name: &'static str,
    title: &'static str,
    caption: &'static str,
    quantity: &'static str,
    /// The column of a bar's length.
    total: &'static str,
    /// The columns of its parts, from the axis outwards. Medians of phases do not add up to the median step: parts show
    /// its shares.
    parts: &'static [&'static str],
    /// How many of the value a bar shows.
    times: f64,
    /// Where a stroke marks the estimate.
    estimate: bool,
}

/// Two charts: seconds of forward, backward and optimizer, stacked, for a median step or with samplers, whose steps do unequal
/// work, for a thousand real tokens; and measured peak memory, with the estimate marked.
pub fn bars(comparison: &Comparison) -> Result<Vec<Chart>> {
    let mut groups = comparison.groups();
    let all = groups.len();
    let named = comparison.methods.len() > NAMES && comparison.problems() == 1;
    if !named {
        groups.truncate(BARS);
    }
    groups.retain(|group| group.problem < SIZES);
    let step = Bars {
        comparison,
        left_out: all - groups.len(),
        groups,
        named,
        name: "time",
        title: "Time of one step",
        caption: "Median time of one step, divided like the medians of its phases.",
        quantity: "time",
        total: "step_s_median",
        parts: &["forward_s_median", "backward_s_median", "optimizer_s_median"],
        times: 1.0,
        estimate: false,
    };
    let tokens = Bars {
        title: "Time of a thousand real tokens",
        caption: "Time of the measured steps for a thousand real tokens: forward, backward and optimizer, stacked; without steps in which the host stood still.",
        total: "step_s_per_token",
        parts: &["forward_s_per_token", "backward_s_per_token", "optimizer_s_per_token"],
        times: 1000.0,
        ..step.clone()
    };
    let memory = Bars {
        name: "memory",
        title: "Peak memory of tensors",
        caption: "Measured peak memory of tensors; the upright stroke is what was estimated beforehand.",
        quantity: "peak memory",
        total: "live_peak_bytes",
        parts: &["live_peak_bytes"],
        estimate: true,
        ..step.clone()
    };
    let time = if comparison.with_samplers() { tokens } else { step };
    let ordered = [time, memory].map(|bars| if bars.named { bars.shortest_first() } else { bars });
    ordered.iter().map(Bars::chart).collect()
}

impl Bars<'_, '_> {
    fn total(&self, group: &Group) -> Option<f64> {
        Some(self.comparison.of_group(self.total, group)? * self.times)
    }

    /// As many as have room for a name. Those without a value are the last.
    fn shortest_first(mut self) -> Self {
        let mut groups = std::mem::take(&mut self.groups);
        groups.sort_by(|a, b| {
            let [a, b] = [a, b].map(|group| self.total(group).unwrap_or(f64::INFINITY));
            a.total_cmp(&b)
        });
        self.left_out += groups.len().saturating_sub(NAMED);
        groups.truncate(NAMED);
        Self { groups, ..self }
    }

    /// Whether a measured group has no time of its forward: a graph is forward and backward in one, and a schedule mixes them.
    fn is_undivided(&self, group: &Group) -> bool {
        self.total(group).is_some() && self.comparison.of_group(self.parts[0], group).is_none()
    }

    /// The lengths of a bar's parts; one of a graph, none of a group that was not measured.
    fn parts(&self, group: &Group) -> Vec<f64> {
        let of = |part: &&str| self.comparison.of_group(part, group);
        let parts: Vec<f64> = self.parts.iter().filter_map(of).collect();
        let sum: f64 = parts.iter().sum();
        let total = self.total(group).unwrap_or(sum);
        if self.is_undivided(group) {
            return vec![total];
        }
        parts.into_iter().map(|part| if sum > 0.0 { part / sum * total } else { part }).collect()
    }

    fn estimate(&self, group: &Group) -> f64 {
        self.comparison.lines[group.lines[0]].estimate() as f64
    }

    fn written(&self, value: f64) -> String {
        self.comparison.frame.unit(self.total).write(value)
    }

    fn problems(&self) -> usize {
        self.groups.last().map_or(0, |group| group.problem + 1)
    }

    /// The least and the largest of several processes' times.
    fn spread(&self, group: &Group) -> Option<(f64, f64)> {
        let values = self.comparison.over_processes(self.total, &group.lines);
        let (low, high) = extent(&values);
        (values.len() > 1 && !self.estimate).then_some((low * self.times, high * self.times))
    }

    /// From zero to the largest bar or estimate of a measured cell, and whether bars reach beyond: those that
    /// would hide the differences of most others.
    fn range(&self, basis: &Basis) -> ((f64, f64), bool) {
        let largest = self.groups.iter().filter_map(|group| {
            let estimate = if self.estimate { self.estimate(group) } else { 0.0 };
            let high = self.spread(group).map_or(0.0, |(_, high)| high);
            Some(self.total(group)?.max(estimate).max(high) / basis.divisor(group.problem)?)
        });
        let mut values: Vec<f64> = largest.collect();
        values.sort_by(f64::total_cmp);
        let far = values.get(values.len() / 2).map_or(0.0, |median| FAR * median);
        let near = values.partition_point(|value| *value <= far);
        let (low, high) = from_zero(values[..near].iter().copied());
        match values.get(near).is_some_and(|first| *first > GAP * high) {
            true => ((low, BROKEN * high), true),
            false => (from_zero(values.into_iter()), false),
        }
    }

    /// What stands at the end of a bar, or in its place.
    fn value(&self, group: &Group, basis: &Basis) -> String {
        let lines = || group.lines.iter().map(|&i| &self.comparison.lines[i]);
        let ended = lines().filter(|line| line.measured().is_some()).count();
        let status =
            lines().find(|line| line.measured().is_none()).map_or_else(String::new, |line| line.status());
        let some = if ended < group.lines.len() {
            format!(" ({} of {} {status})", group.lines.len() - ended, group.lines.len())
        } else {
            String::new()
        };
        match (self.total(group), basis.divisor(group.problem)) {
            (Some(total), Some(divisor)) if basis.relative && basis.is_of_tables(group) => {
                format!("{} · {}{some}", ratio(total / divisor), self.written(total))
            }
            (Some(total), _) => format!("{}{some}", self.written(total)),
            // Off the scale as likely as not, so in words.
            (None, _) if self.estimate && self.estimate(group) > 0.0 => {
                format!("{status}, estimated {}", self.written(self.estimate(group)))
            }
            (None, _) => status,
        }
    }
}

#[cfg(test)]
mod tests;
