//! Grouped bars, one group a shape and one bar a method: time by phase, and peak memory.
//!
//! Bars are horizontal, so that names and values of any length fit on their line.

use super::super::table::Comparison;
use super::Chart;
use super::axis::{Scale, from_zero, tick_label};
use super::basis::Basis;
use super::canvas::{
    ALARM, Anchor, Canvas, INK, MUTED, Result, SMALL, TEXT, WIDTH, fit, method_color, svg, text_width, tint,
};
use super::legend::{Legend, Sign};
use super::plot::{Axis, BELOW, MARGIN, Ticks};
use crate::words::text::ratio;
use plotters::style::WHITE;

/// Strength of the colour of forward, backward and optimizer.
const PHASES: [(&str, f64); 3] = [("forward", 1.0), ("backward", 0.62), ("optimizer", 0.3)];
const TOP: i32 = 48;
const GROUP_GAP: i32 = 12;
/// Height of all bars together that still leaves an A4 page room for a caption.
const MOST: i32 = 940;
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
    name: &'static str,
    title: &'static str,
    caption: &'static str,
    quantity: &'static str,
    /// The columns that are the parts of a bar, from the axis outwards.
    parts: &'static [&'static str],
    /// How many of a part's value a bar shows.
    times: f64,
    /// Where a stroke marks the estimate.
    estimate: bool,
}

/// Seconds of forward, backward and optimizer, stacked: the medians of a step, or with samplers, whose steps
/// are not alike, those of a thousand real tokens. And measured peak memory, with the estimate marked.
pub fn bars(comparison: &Comparison) -> Result<Vec<Chart>> {
    let step = Bars {
        comparison,
        name: "time",
        title: "Time of one step",
        caption: "Median time of one step: forward, backward and optimizer stacked.",
        quantity: "time",
        parts: &["forward_s_median", "backward_s_median", "optimizer_s_median"],
        times: 1.0,
        estimate: false,
    };
    let tokens = Bars {
        title: "Time of a thousand real tokens",
        caption: "Forward, backward and optimizer, stacked, of all measured steps for a thousand real tokens.",
        parts: &["forward_s_per_token", "backward_s_per_token", "optimizer_s_per_token"],
        times: 1000.0,
        ..step
    };
    let memory = Bars {
        name: "memory",
        title: "Peak memory",
        caption: "Measured peak memory; the upright stroke is what was estimated beforehand.",
        quantity: "peak memory",
        parts: &["live_peak_bytes"],
        estimate: true,
        ..step
    };
    let time = if comparison.with_samplers() { tokens } else { step };
    [time, memory].iter().map(Bars::chart).collect()
}

impl Bars<'_, '_> {
    /// The lengths of a bar's parts; empty of a cell that was not measured.
    fn parts(&self, line: usize) -> Vec<f64> {
        self.parts
            .iter()
            .filter_map(|part| Some(self.comparison.frame.get(part, line)? * self.times))
            .collect()
    }

    fn total(&self, line: usize) -> Option<f64> {
        let parts = self.parts(line);
        (!parts.is_empty()).then(|| parts.iter().sum())
    }

    fn written(&self, value: f64) -> String {
        self.comparison.frame.unit(self.parts[0]).write(value)
    }

    fn chart(&self) -> Result<Chart> {
        let c = self.comparison;
        let basis = Basis::new(c, |line| self.total(line));
        let pitch = (MOST / c.lines.len() as i32).clamp(6, 19);
        let height_of = |shape: usize| (c.of_shape(shape).count() as i32 * pitch).max(14) + GROUP_GAP;
        let legend = self.legend(pitch < READABLE);
        let top = TOP + legend.height() + 8;
        let bottom = top + (0..c.shapes.len()).map(height_of).sum::<i32>();

        let labels: Vec<String> = (0..c.shapes.len()).map(|s| fit(&basis.label(s), TEXT, 230)).collect();
        let values: Vec<String> = (0..c.lines.len()).map(|i| self.value(i, &basis)).collect();
        let widest =
            |texts: &[String], size: i32| texts.iter().map(|t| text_width(t, size)).max().unwrap_or(0);
        let left = MARGIN + 10 + widest(&labels, TEXT);
        let right = WIDTH - MARGIN - if pitch < READABLE { 0 } else { widest(&values, SMALL) + 8 };
        let (range, broken) = self.range(&basis);
        let (unit, size) = match basis.relative {
            true => ("", 1.0),
            false => c.frame.unit(self.parts[0]).of_axis(range.1),
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
            for (shape, label) in labels.iter().enumerate() {
                let middle = y + (height_of(shape) - GROUP_GAP) / 2;
                canvas.text(label, (left - 10, middle), TEXT, INK, Anchor::Right)?;
                for (row, i) in c.of_shape(shape).enumerate() {
                    let at = (y + row as i32 * pitch, pitch);
                    self.bar(canvas, i, (&scale, range.1), basis.divisor(shape), at, &values[i])?;
                }
                y += height_of(shape);
            }
            canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
        })?;
        let longer = if broken { " A broken bar is longer than the axis." } else { "" };
        Ok(Chart {
            name: self.name.into(),
            caption: format!("{}{}{longer}", self.caption, basis.note()),
            svg,
        })
    }

    /// From zero to the largest bar or estimate of a measured cell, and whether bars reach beyond: those that
    /// would hide the differences of most others.
    fn range(&self, basis: &Basis) -> ((f64, f64), bool) {
        let largest = self.comparison.lines.iter().enumerate().filter_map(|(i, line)| {
            let estimate = if self.estimate { line.estimate() as f64 } else { 0.0 };
            Some(self.total(i)?.max(estimate) / basis.divisor(line.shape)?)
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
    fn value(&self, i: usize, basis: &Basis) -> String {
        let line = &self.comparison.lines[i];
        match (self.total(i), basis.divisor(line.shape)) {
            (Some(total), Some(divisor)) if basis.relative => {
                format!("{} · {}", ratio(total / divisor), self.written(total))
            }
            (Some(total), _) => self.written(total),
            // Off the scale as likely as not, so in words.
            (None, _) if self.estimate && line.estimate() > 0 => {
                format!("{}, estimated {}", line.status(), self.written(line.estimate() as f64))
            }
            (None, _) => line.status().into(),
        }
    }

    fn bar(
        &self,
        canvas: &Canvas,
        i: usize,
        (scale, high): (&Scale, f64),
        divisor: Option<f64>,
        (y, pitch): (i32, i32),
        text: &str,
    ) -> Result {
        let line = &self.comparison.lines[i];
        let (bottom, middle) = (y + pitch - if pitch < 10 { 1 } else { 2 }, y + (pitch - 1) / 2);
        let mut end = scale.pixel(0.0);
        if let (Some(_), Some(divisor)) = (line.measured(), divisor) {
            let (parts, mut sum) = (self.parts(i), 0.0);
            for (part, (_, strength)) in parts.iter().zip(PHASES) {
                let from = end;
                sum += part / divisor;
                end = scale.pixel(sum.min(high));
                canvas.rect((from, y), (end, bottom), tint(method_color(line.method), strength))?;
            }
            if sum > high {
                for x in [end - 12, end - 6] {
                    canvas.line(&[(x - 3, bottom), (x + 3, y)], WHITE, 2)?;
                }
            }
            let estimate = line.estimate() as f64 / divisor;
            if self.estimate && estimate > 0.0 && estimate <= high {
                let x = scale.pixel(estimate);
                canvas.rect((x - 1, y - 1), (x + 1, bottom + 1), INK)?;
                // A text before the stroke would run through it.
                end = end.max(x);
            }
        }
        let color = if line.measured().is_some() { INK } else { ALARM };
        if pitch >= READABLE {
            canvas.rect((end + 4, y), (end + 8 + text_width(text, SMALL), bottom), WHITE)?;
            canvas.text(text, (end + 6, middle), SMALL.min(pitch - 3), color, Anchor::Left)
        } else if line.measured().is_none() {
            canvas.cross((end + 6, middle), 2, color)
        } else {
            Ok(())
        }
    }

    fn legend(&self, crosses: bool) -> Legend {
        let mut legend = Legend::of(&self.comparison.methods, |method| Sign::Fill(method_color(method)));
        let phases = (0..self.comparison.lines.len()).map(|i| self.parts(i).len()).max().unwrap_or(0);
        if phases > 1 {
            for (name, strength) in &PHASES[..phases] {
                legend.add(Sign::Fill(tint(MUTED, *strength)), name);
            }
        }
        if self.estimate {
            legend.add(Sign::Stroke, "estimate");
        }
        if crosses && self.comparison.lines.iter().any(|line| line.measured().is_none()) {
            legend.add(Sign::Cross, "no measurement (see the table)");
        }
        legend
    }
}
