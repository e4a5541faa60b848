//! Bars of time by phase and of peak memory: a heading for each problem, and a bar for each method with its name and value.
//! Cells that differ in the seed alone are one bar, of their median. The bars of a problem share a scale.
//!
//! Bars are horizontal, so that names and values of any length fit on their line.

mod drawing;

use super::super::table::{Comparison, Group};
use super::Chart;
use super::axis::{extent, from_zero};
use super::canvas::Result;

/// More bars and headings than this, in lines of text, fill more than a page.
const LINES: usize = 54;

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
    /// How many more there are.
    left_out: usize,
    name: &'static str,
    title: &'static str,
    caption: &'static str,
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
    let groups = comparison.groups();
    let ran = groups.iter().filter(|group| comparison.of_group("step_s_median", group).is_some());
    if ran.count() < 2 {
        return Ok(Vec::new());
    }
    let step = Bars {
        comparison,
        left_out: 0,
        groups,
        name: "time",
        title: "Time of one step",
        caption: "Median time of one step, divided like the medians of its phases.",
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
        total: "live_peak_bytes",
        parts: &["live_peak_bytes"],
        estimate: true,
        ..step.clone()
    };
    let time = if comparison.with_samplers() { tokens } else { step };
    [time, memory].into_iter().map(|bars| bars.of_a_page().chart()).collect()
}

impl Bars<'_, '_> {
    fn total(&self, group: &Group) -> Option<f64> {
        Some(self.comparison.of_group(self.total, group)? * self.times)
    }

    /// Whether problems have headings: else a bar's name says what it is.
    fn has_headings(&self) -> bool {
        self.comparison.problems() > 1 && self.comparison.methods.len() > 1
    }

    /// As many as a page has room for: of one problem those with the least, of several the first ones.
    fn of_a_page(mut self) -> Self {
        let mut lines = 0;
        let all = self.groups.len();
        if self.comparison.problems() == 1 && all > LINES {
            let mut groups = std::mem::take(&mut self.groups);
            let value = |group: &Group| self.total(group).unwrap_or(f64::INFINITY);
            groups.sort_by(|a, b| value(a).total_cmp(&value(b)));
            self.groups = groups;
        }
        let headings = self.has_headings();
        let mut before = None;
        self.groups.retain(|group| {
            lines += 1 + usize::from(headings && before.replace(group.problem) != Some(group.problem));
            lines <= LINES
        });
        Self { left_out: all - self.groups.len(), ..self }
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

    /// The least and the largest of several processes' times.
    fn spread(&self, group: &Group) -> Option<(f64, f64)> {
        let values = self.comparison.over_processes(self.total, &group.lines);
        let (low, high) = extent(&values);
        (values.len() > 1 && !self.estimate).then_some((low * self.times, high * self.times))
    }

    /// What the longest bar or estimate is of those that share a scale, and whether bars reach beyond it: those that would hide
    /// the differences of most others. Without headings all share it.
    fn longest(&self, problem: usize) -> (f64, bool) {
        let all = !self.has_headings();
        let shares = |group: &&Group| all || group.problem == problem;
        let largest = self.groups.iter().filter(shares).filter_map(|group| {
            let estimate = if self.estimate { self.estimate(group) } else { 0.0 };
            let high = self.spread(group).map_or(0.0, |(_, high)| high);
            Some(self.total(group)?.max(estimate).max(high))
        });
        let mut values: Vec<f64> = largest.collect();
        values.sort_by(f64::total_cmp);
        let far = values.get(values.len() / 2).map_or(0.0, |median| FAR * median);
        let near = values.partition_point(|value| *value <= far);
        let (_, high) = from_zero(values[..near].iter().copied());
        match values.get(near).is_some_and(|first| *first > GAP * high) {
            true => (BROKEN * high, true),
            false => (from_zero(values.into_iter()).1, false),
        }
    }

    /// What stands at the end of a bar, or in its place.
    fn value(&self, group: &Group) -> String {
        let lines = || group.lines.iter().map(|&i| &self.comparison.lines[i]);
        let ended = lines().filter(|line| line.measured().is_some()).count();
        let status =
            lines().find(|line| line.measured().is_none()).map_or_else(String::new, |line| line.status());
        let some = if ended < group.lines.len() {
            format!(" ({} of {} {status})", group.lines.len() - ended, group.lines.len())
        } else {
            String::new()
        };
        match self.total(group) {
            Some(total) => format!("{}{some}", self.written(total)),
            // Off the scale as likely as not, so in words.
            None if self.estimate && self.estimate(group) > 0.0 => {
                format!("{status}, estimated {}", self.written(self.estimate(group)))
            }
            None => status,
        }
    }
}

#[cfg(test)]
mod tests;
