//! Grouped bars, a group for each of the sizes and a bar a method: time by phase, and peak memory. Cells that differ in the
//! seed alone are one bar, of their median.
//!
//! Bars are horizontal, so that names and values of any length fit on their line.

use super::super::labels::size_note;
use super::super::table::{Comparison, Group};
use super::Chart;
use super::axis::{Scale, extent, from_zero, tick_label};
use super::basis::Basis;
use super::canvas::{
    ALARM, Anchor, Canvas, INK, MUTED, Result, SMALL, TEXT, WIDTH, fit, method_color, svg, text_width, tint,
};
use super::legend::{Legend, Sign};
use super::plot::{Axis, BELOW, MARGIN, Ticks};
use crate::words::text::{ratio, sentence};
use plotters::style::WHITE;

/// Strength of the colour of forward, backward and optimizer.
const PHASES: [(&str, f64); 3] = [("forward", 1.0), ("backward", 0.62), ("optimizer", 0.3)];
const TOP: i32 = 48;
const GROUP_GAP: i32 = 12;
/// Height of all bars together that still leaves an A4 page room for a caption.
const MOST: i32 = 940;
/// More bars than this cannot be told apart on a page.
const BARS: usize = 150;
/// Below this distance a bar has no room for a line of text.
const READABLE: i32 = 13;

/// A bar this many times as long as the median one is broken off, a little beyond the longest other one, where
/// that one leaves a gap.
const FAR: f64 = 8.0;
const GAP: f64 = 3.0;
const BROKEN: f64 = 1.2;

/// One kind of bars.
struct Bars<'c, 'a> {
    comparison: &'c Comparison<'a>,
    groups: &'c [Group],
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

/// Seconds of forward, backward and optimizer, stacked: the medians of a step, or with samplers, whose steps
/// are not alike, those of a thousand real tokens. And measured peak memory, with the estimate marked.
pub fn bars(comparison: &Comparison) -> Result<Vec<Chart>> {
    let mut groups = comparison.groups();
    let all = groups.len();
    groups.truncate(BARS);
    let step = Bars {
        comparison,
        groups: &groups,
        left_out: all - groups.len(),
        name: "time",
        title: "Time of one step",
        caption: "Median time of one step, divided like the medians of forward, backward and optimizer.",
        quantity: "time",
        total: "step_s_median",
        parts: &["forward_s_median", "backward_s_median", "optimizer_s_median"],
        times: 1.0,
        estimate: false,
    };
    let tokens = Bars {
        title: "Time of a thousand real tokens",
        caption: "Forward, backward and optimizer, stacked, of all measured steps for a thousand real tokens.",
        total: "step_s_per_token",
        parts: &["forward_s_per_token", "backward_s_per_token", "optimizer_s_per_token"],
        times: 1000.0,
        ..step
    };
    let memory = Bars {
        name: "memory",
        title: "Peak memory of tensors",
        caption: "Measured peak memory of tensors; the upright stroke is what was estimated beforehand.",
        quantity: "peak memory",
        total: "live_peak_bytes",
        parts: &["live_peak_bytes"],
        estimate: true,
        ..step
    };
    let time = if comparison.with_samplers() { tokens } else { step };
    [time, memory].iter().map(Bars::chart).collect()
}

impl Bars<'_, '_> {
    fn total(&self, group: &Group) -> Option<f64> {
        Some(self.comparison.of_group(self.total, group)? * self.times)
    }

    /// The lengths of a bar's parts; empty of a group that was not measured.
    fn parts(&self, group: &Group) -> Vec<f64> {
        let of = |part: &&str| self.comparison.of_group(part, group);
        let parts: Vec<f64> = self.parts.iter().filter_map(of).collect();
        let sum: f64 = parts.iter().sum();
        let total = self.total(group).unwrap_or(sum);
        parts.into_iter().map(|part| if sum > 0.0 { part / sum * total } else { part }).collect()
    }

    fn estimate(&self, group: &Group) -> f64 {
        self.comparison.lines[group.lines[0]].estimate() as f64
    }

    fn written(&self, value: f64) -> String {
        self.comparison.frame.unit(self.total).write(value)
    }

    fn chart(&self) -> Result<Chart> {
        let c = self.comparison;
        let basis = Basis::new(c, self.groups, |group| self.total(group));
        let pitch = (MOST / self.groups.len() as i32).clamp(6, 19);
        let of = |problem: usize| self.groups.iter().enumerate().filter(move |(_, of)| of.problem == problem);
        let height_of = |problem: usize| (of(problem).count() as i32 * pitch).max(14) + GROUP_GAP;
        let legend = self.legend(pitch < READABLE);
        let top = TOP + legend.height() + 8;
        let bottom = top + (0..self.problems()).map(height_of).sum::<i32>();

        let labels: Vec<String> = (0..self.problems()).map(|p| fit(&basis.label(p), TEXT, 230)).collect();
        let values: Vec<String> = self.groups.iter().map(|group| self.value(group, &basis)).collect();
        let widest =
            |texts: &[String], size: i32| texts.iter().map(|t| text_width(t, size)).max().unwrap_or(0);
        let left = MARGIN + 10 + widest(&labels, TEXT);
        let right = WIDTH - MARGIN - if pitch < READABLE { 0 } else { widest(&values, SMALL) + 8 };
        let (range, broken) = self.range(&basis);
        let (unit, size) = match basis.relative {
            true => ("", 1.0),
            false => c.frame.unit(self.total).of_axis(range.1),
        };
        let axis = Axis {
            ticks: Ticks::About(8),
            label: if basis.relative { |tick| format!("{}x", tick_label(tick)) } else { tick_label },
            ..Axis::new(basis.axis(self.quantity, unit), (0.0, range.1 / size))
        };

        let svg = svg(bottom + BELOW, |canvas| {
            canvas.title(self.title)?;
            legend.draw(canvas, TOP)?;
            axis.draw_below(canvas, (left, right), (top, bottom))?;
            let scale = Scale::new(range, (left, right), false);
            if basis.relative {
                let one = scale.pixel(1.0);
                canvas.line(&[(one, top), (one, bottom)], MUTED, 1)?;
            }
            let mut y = top + GROUP_GAP / 2;
            for (problem, label) in labels.iter().enumerate() {
                let middle = y + (height_of(problem) - GROUP_GAP) / 2;
                canvas.text(label, (left - 10, middle), TEXT, INK, Anchor::Right)?;
                for (row, (i, group)) in of(problem).enumerate() {
                    let at = (y + row as i32 * pitch, pitch);
                    self.bar(canvas, group, (&scale, range.1), basis.divisor(problem), at, &values[i])?;
                }
                y += height_of(problem);
            }
            canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
        })?;
        let longer = if broken { " A broken bar is longer than the axis." } else { "" };
        let spread = match self.groups.iter().any(|group| self.spread(group).is_some()) {
            true => " The thin line is from the least to the largest of its processes.",
            false => "",
        };
        let sizes = size_note(c).map_or_else(String::new, |note| format!(" {}.", sentence(&note)));
        let more = match self.left_out {
            0 => String::new(),
            n => format!(" Not drawn: {n} more, which table.csv has."),
        };
        let caption = format!("{}{spread}{}{longer}{more}{sizes}", self.caption, basis.note());
        Ok(Chart { name: self.name.into(), caption, svg })
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
            (Some(total), Some(divisor)) if basis.relative => {
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

    fn bar(
        &self,
        canvas: &Canvas,
        group: &Group,
        (scale, high): (&Scale, f64),
        divisor: Option<f64>,
        (y, pitch): (i32, i32),
        text: &str,
    ) -> Result {
        let (bottom, middle) = (y + pitch - if pitch < 10 { 1 } else { 2 }, y + (pitch - 1) / 2);
        let mut end = scale.pixel(0.0);
        let total = self.total(group);
        if let (Some(_), Some(divisor)) = (total, divisor) {
            let (parts, mut sum) = (self.parts(group), 0.0);
            for (part, (_, strength)) in parts.iter().zip(PHASES) {
                let from = end;
                sum += part / divisor;
                end = scale.pixel(sum.min(high));
                canvas.rect((from, y), (end, bottom), tint(method_color(group.method), strength))?;
            }
            if sum > high {
                for x in [end - 12, end - 6] {
                    canvas.line(&[(x - 3, bottom), (x + 3, y)], WHITE, 2)?;
                }
            }
            if let Some((low, most)) = self.spread(group) {
                let [from, to] = [low, most].map(|value| scale.pixel((value / divisor).min(high)));
                canvas.line(&[(from, middle), (to, middle)], INK, 1)?;
                end = end.max(to);
            }
            let estimate = self.estimate(group) / divisor;
            if self.estimate && estimate > 0.0 && estimate <= high {
                let x = scale.pixel(estimate);
                canvas.rect((x - 1, y - 1), (x + 1, bottom + 1), INK)?;
                // A text before the stroke would run through it.
                end = end.max(x);
            }
        }
        let name = &self.comparison.methods[group.method];
        canvas.hover(
            (scale.pixel(0.0), y),
            (end.max(scale.pixel(0.0) + 8), bottom),
            &format!("{name}: {text}"),
        );
        let color = if total.is_some() { INK } else { ALARM };
        if pitch >= READABLE {
            canvas.rect((end + 4, y), (end + 8 + text_width(text, SMALL), bottom), WHITE)?;
            canvas.text(text, (end + 6, middle), SMALL.min(pitch - 3), color, Anchor::Left)
        } else if total.is_none() {
            canvas.cross((end + 6, middle), 2, color)
        } else {
            Ok(())
        }
    }

    fn legend(&self, crosses: bool) -> Legend {
        let mut legend = Legend::of(&self.comparison.methods, |method| Sign::Fill(method_color(method)));
        let phases = self.groups.iter().map(|group| self.parts(group).len()).max().unwrap_or(0);
        if phases > 1 {
            for (name, strength) in &PHASES[..phases] {
                legend.add(Sign::Fill(tint(MUTED, *strength)), name);
            }
        }
        if self.estimate {
            legend.add(Sign::Stroke, "estimate");
        }
        if crosses && self.groups.iter().any(|group| self.total(group).is_none()) {
            legend.add(Sign::Cross, "no measurement (see the table)");
        }
        legend
    }
}
