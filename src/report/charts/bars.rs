//! Bars of time by phase and of peak memory: a heading for each problem, and a bar for each method with its name and value.
//! Cells that differ in the seed alone are one bar, of their median. The bars of a problem share a scale.

use super::bar::{Bar, PITCH, room};
use super::prelude::*;
use crate::common::text::sentence;

/// More bars and headings than this, in lines of text, fill more than a page.
const LINES: usize = 54;
const TOP: i32 = 48;
const HEADING: i32 = 26;
/// The colour of all bars: they have names.
const COLOR: usize = 0;
/// That of a bar without phases.
const UNDIVIDED: RGBColor = RGBColor(120, 120, 120);

/// A bar this many times as long as the median one is broken off a little beyond the longest other one, where there is a gap
/// between the two.
const FAR: f64 = 8.0;
const GAP: f64 = 3.0;
const BROKEN: f64 = 1.2;

/// One kind of bars.
struct Bars {
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
    /// Whether a stroke marks the estimate.
    estimate: bool,
}

const STEP: Bars = Bars {
    name: "time",
    title: "Time of one step",
    caption: "Median time of one step, divided like the medians of its phases.",
    total: "step_s_median",
    parts: &["forward_s_median", "backward_s_median", "optimizer_s_median"],
    times: 1.0,
    estimate: false,
};
const TOKENS: Bars = Bars {
    title: "Time of a thousand real tokens",
    caption: "Time of the measured steps for a thousand real tokens: forward, backward and optimizer, stacked; without steps in which the host stood still.",
    total: "step_s_per_token",
    parts: &["forward_s_per_token", "backward_s_per_token", "optimizer_s_per_token"],
    times: 1000.0,
    ..STEP
};
const MEMORY: Bars = Bars {
    name: "memory",
    title: "Peak memory of tensors",
    caption: "Measured peak memory of tensors; the upright stroke is the estimate.",
    total: "live_peak_bytes",
    parts: &["live_peak_bytes"],
    estimate: true,
    ..STEP
};

/// Two charts: seconds of forward, backward and optimizer, stacked, for a median step or with samplers, whose steps do unequal
/// work, for a thousand real tokens; and measured peak memory, with the estimate marked.
pub fn bars(comparison: &Comparison) -> Result<Vec<Chart>> {
    let groups = comparison.groups();
    if comparison.ranked("step_s_median", &groups).len() < 2 {
        return Ok(Vec::new());
    }
    let time = if comparison.with_samplers() { TOKENS } else { STEP };
    [time, MEMORY].iter().map(|bars| bars.chart(comparison, &groups)).collect()
}

/// Whether problems have headings: else a bar's name says what it is.
fn has_headings(comparison: &Comparison) -> bool {
    comparison.problems() > 1 && comparison.methods.len() > 1
}

impl Bars {
    fn chart(&self, comparison: &Comparison, all: &[Group]) -> Result<Chart> {
        let groups = self.of_a_page(comparison, all);
        let bars: Vec<Bar> = groups.iter().map(|group| self.bar(comparison, group)).collect();
        let headings = has_headings(comparison);
        let of_problem = |problem: usize| {
            let bars = bars.iter().zip(&groups).filter(|(_, group)| !headings || group.problem == problem);
            longest(bars.filter_map(|(bar, _)| bar.reach()))
        };
        let longest: Vec<(f64, bool)> = (0..comparison.problems()).map(of_problem).collect();
        let legend = self.legend(&bars);
        let (names, texts) = room(&bars);
        let sides = (MARGIN + names, WIDTH - MARGIN - texts);
        let top = TOP + legend.height() + 12;
        let begins = |i: usize| headings && (i == 0 || groups[i - 1].problem != groups[i].problem);
        let count = (0..bars.len()).filter(|&i| begins(i)).count() as i32;
        let height = top + PITCH * bars.len() as i32 + HEADING * count + 4 + MARGIN;
        let svg = svg(self.title, height, |canvas| {
            legend.draw(canvas, TOP)?;
            let mut y = top;
            for (i, (bar, group)) in bars.iter().zip(&groups).enumerate() {
                if begins(i) {
                    let text = fit(&comparison.problem_label(group.problem), TEXT, WIDTH - 2 * MARGIN);
                    canvas.text(&text, (MARGIN, y + HEADING / 2), TEXT, INK, Anchor::Left)?;
                    y += HEADING;
                }
                bar.draw_name(canvas, y, sides.0)?;
                bar.draw(canvas, y, sides, longest[group.problem].0)?;
                y += PITCH;
            }
            Ok(())
        })?;
        let mut caption = self.caption.to_string();
        let notes = [
            (headings, "The bars of a size share a scale."),
            (
                bars.iter().any(|bar| bar.spread.is_some()),
                "The thin line is from the least to the largest of its processes.",
            ),
            (longest.iter().any(|(_, broken)| *broken), "A broken bar is longer than it is drawn."),
        ];
        notes.iter().filter(|(holds, _)| *holds).for_each(|(_, note)| caption += &format!(" {note}"));
        if groups.len() < all.len() {
            caption += &format!(" Not drawn: {} more, which table.csv has.", all.len() - groups.len());
        }
        caption.extend(comparison.size_note().map(|note| format!(" {}.", sentence(&note))));
        Ok(Chart { name: self.name.into(), caption, svg })
    }

    /// As many as a page has room for: of one problem those with the least, of several the first ones.
    fn of_a_page(&self, comparison: &Comparison, all: &[Group]) -> Vec<Group> {
        let mut groups = all.to_vec();
        if comparison.problems() == 1 && all.len() > LINES {
            let value = |group: &Group| comparison.of_group(self.total, group).unwrap_or(f64::INFINITY);
            groups.sort_by(|a, b| value(a).total_cmp(&value(b)));
        }
        let (mut lines, mut before) = (0, None);
        groups.retain(|group| {
            let begins = before.replace(group.problem) != Some(group.problem);
            lines += 1 + usize::from(begins && has_headings(comparison));
            lines <= LINES
        });
        groups
    }

    fn bar(&self, comparison: &Comparison, group: &Group) -> Bar {
        let total = comparison.of_group(self.total, group).map(|total| total * self.times);
        let parts: Vec<Option<f64>> =
            self.parts.iter().map(|part| comparison.of_group(part, group)).collect();
        let sum: f64 = parts.iter().flatten().sum();
        let share = |part: f64| if sum > 0.0 { part / sum } else { 0.0 };
        let parts = match total {
            None => Vec::new(),
            // A graph is forward and backward in one, and a schedule mixes them.
            Some(total) if parts[0].is_none() => vec![(total, UNDIVIDED)],
            Some(total) => {
                let colors = PHASES.map(|(_, strength)| tint(method_color(COLOR), strength));
                parts.into_iter().flatten().map(|part| share(part) * total).zip(colors).collect()
            }
        };
        let values = comparison.over_processes(self.total, &group.lines);
        let (low, high) = extent(&values);
        let estimate = comparison.lines[group.lines[0]].estimate() as f64;
        let has_methods = comparison.methods.len() > 1;
        let (size, method) = (comparison.problem_label(group.problem), &comparison.methods[group.method]);
        Bar {
            name: if has_methods { method.clone() } else { size },
            parts,
            spread: (values.len() > 1 && !self.estimate).then_some((low * self.times, high * self.times)),
            estimate: self.estimate.then_some(estimate),
            text: self.text(comparison, group, total, estimate),
        }
    }

    /// What stands at the end of a bar, or in its place.
    fn text(&self, comparison: &Comparison, group: &Group, total: Option<f64>, estimate: f64) -> String {
        let written = |value: f64| comparison.frame.unit(self.total).write(value);
        let lines = group.lines.iter().map(|&i| &comparison.lines[i]);
        let lost: Vec<_> = lines.filter(|line| line.measured().is_none()).collect();
        let status = lost.first().map_or_else(String::new, |line| line.status());
        match total {
            Some(total) if lost.is_empty() => written(total),
            Some(total) => format!("{} ({} of {} {status})", written(total), lost.len(), group.lines.len()),
            // Off the scale as likely as not, so in words.
            None if self.estimate && estimate > 0.0 => format!("{status}, estimated {}", written(estimate)),
            None => status,
        }
    }

    fn legend(&self, bars: &[Bar]) -> Legend {
        let mut legend = Legend::default();
        let phases = bars.iter().map(|bar| bar.parts.len()).max().unwrap_or(0);
        if phases > 1 {
            for (name, strength) in &PHASES[..phases] {
                legend.add(Sign::Fill(tint(method_color(COLOR), *strength)), name);
            }
            if bars.iter().any(|bar| bar.parts.first().is_some_and(|(_, color)| *color == UNDIVIDED)) {
                legend.add(Sign::Fill(UNDIVIDED), "a graph or a pipeline, undivided");
            }
        }
        if self.estimate {
            legend.add(Sign::Stroke, "estimate");
        }
        legend
    }
}

/// The value at the end of the scale of bars that reach so far, and whether some reach beyond it: those that would hide the
/// differences of most others.
fn longest(reaches: impl Iterator<Item = f64>) -> (f64, bool) {
    let mut values: Vec<f64> = reaches.collect();
    values.sort_by(f64::total_cmp);
    let far = values.get(values.len() / 2).map_or(0.0, |median| FAR * median);
    let near = values.partition_point(|value| *value <= far);
    let (_, high) = from_zero(values[..near].iter().copied());
    match values.get(near).is_some_and(|first| *first > GAP * high) {
        true => (BROKEN * high, true),
        false => (from_zero(values.into_iter()).1, false),
    }
}

#[cfg(test)]
mod tests;
