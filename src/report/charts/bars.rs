//! Grouped bars, one group a shape and one bar a method: time by phase, and peak memory.
//!
//! Bars lie down, so that names and values of any length stand beside them and never meet.
//! Where the shapes' values differ ten-fold or more, each shape is drawn relative to its baseline:
//! a common scale would hide the small ones and a logarithmic one would falsify the lengths.

use super::super::format::{byte_unit, ratio, seconds, time_unit};
use super::super::table::Comparison;
use super::Chart;
use super::axis::{Scale, from_zero, tick_label};
use super::canvas::{
    ALARM, Anchor, Canvas, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, fit, method_color, svg,
    text_width, tint,
};
use super::legend::{Legend, Sign};
use crate::measure::Measurement;
use crate::recipe::Bytes;
use plotters::style::WHITE;

/// Strength of the colour of forward, backward and optimizer.
const PHASES: [(&str, f64); 3] = [("forward", 1.0), ("backward", 0.62), ("optimizer", 0.3)];
const TOP: i32 = 48;
const MARGIN: i32 = 20;
const GROUP_GAP: i32 = 12;
/// Height of all bars together that still leaves an A4 page room for a caption.
const MOST: i32 = 940;
/// Below this distance a bar has no room for a line of text.
const READABLE: i32 = 13;

/// One kind of bars.
struct Bars<'c, 'a> {
    comparison: &'c Comparison<'a>,
    title: &'static str,
    quantity: &'static str,
    /// The parts of a measured bar, from the axis outwards.
    parts: fn(&Measurement) -> Vec<f64>,
    /// Where a stroke marks the estimate.
    estimate: bool,
    /// The unit of absolute values of this size.
    unit: fn(f64) -> (&'static str, f64),
    text: fn(f64) -> String,
}

/// Median seconds of forward, backward and optimizer, stacked.
pub fn time(comparison: &Comparison) -> Result<Chart> {
    let bars = Bars {
        comparison,
        title: "Time of one step",
        quantity: "time",
        parts: |m| {
            let optimizer = m.optimizer.as_ref().map(|samples| samples.median);
            [Some(m.forward.median), Some(m.backward.median), optimizer].into_iter().flatten().collect()
        },
        estimate: false,
        unit: time_unit,
        text: seconds,
    };
    bars.chart("time", "Median time of one step: forward, backward and optimizer stacked.")
}

/// Measured peak memory, with the estimate marked.
pub fn memory(comparison: &Comparison) -> Result<Chart> {
    let bars = Bars {
        comparison,
        title: "Peak memory",
        quantity: "peak memory",
        parts: |m| vec![m.memory.live_peak as f64],
        estimate: true,
        unit: byte_unit,
        text: |bytes| Bytes(bytes as u64).to_string(),
    };
    bars.chart("memory", "Measured peak memory; the upright stroke is what was estimated beforehand.")
}

/// What one shape's values are divided by when bars are relative.
struct Reference {
    value: f64,
    method: usize,
    is_baseline: bool,
}

impl Bars<'_, '_> {
    fn total(&self, line: usize) -> Option<f64> {
        Some((self.parts)(self.comparison.lines[line].measured()?).iter().sum())
    }

    /// The baseline of a shape, or its first measured method.
    fn reference(&self, shape: usize) -> Option<Reference> {
        let lines = &self.comparison.lines;
        let of_shape = || (0..lines.len()).filter(|&i| lines[i].shape == shape);
        let baseline = of_shape().find(|&i| self.comparison.is_baseline(i));
        baseline.into_iter().chain(of_shape()).find_map(|i| {
            let value = self.total(i).filter(|v| *v > 0.0)?;
            Some(Reference { value, method: lines[i].method, is_baseline: baseline == Some(i) })
        })
    }

    fn chart(&self, name: &str, caption: &str) -> Result<Chart> {
        let c = self.comparison;
        let references: Vec<Option<Reference>> = (0..c.shapes.len()).map(|s| self.reference(s)).collect();
        let (low, high) = references
            .iter()
            .flatten()
            .fold((f64::INFINITY, 0.0f64), |(low, high), r| (low.min(r.value), high.max(r.value)));
        let relative = high >= 10.0 * low;
        let mut caption = caption.to_string();
        let divisor = |shape: usize| match (relative, &references[shape]) {
            (false, _) => Some(1.0),
            (true, reference) => reference.as_ref().map(|r| r.value),
        };
        let mut largest: Vec<f64> = Vec::new();
        for (i, line) in c.lines.iter().enumerate() {
            let Some(divisor) = divisor(line.shape) else { continue };
            largest.extend(self.total(i).map(|v| v / divisor));
            if self.estimate && line.measured().is_some() {
                largest.push(line.estimate() as f64 / divisor);
            }
        }
        let range = from_zero(largest.into_iter());
        let (unit, unit_scale) = if relative { ("", 1.0) } else { (self.unit)(range.1) };
        if relative {
            caption.push_str(
                " Each shape is drawn relative to its baseline, since they differ ten-fold or more.",
            );
            if references.iter().flatten().any(|r| !r.is_baseline) {
                caption
                    .push_str(" * The baseline has no measurement: relative to the first method that has.");
            }
        }

        let axis = match references.iter().flatten().find(|r| r.is_baseline) {
            _ if !relative => format!("{} in {unit}", self.quantity),
            Some(r) => format!("{} relative to {} at the same sizes", self.quantity, c.methods[r.method]),
            None => format!("{} relative to the first measured method at the same sizes", self.quantity),
        };

        let label = |shape: usize| {
            let star = relative && references[shape].as_ref().is_some_and(|r| !r.is_baseline);
            let text = &c.shapes[shape].label;
            fit(&format!("{text}{}", if star { " *" } else { "" }), TEXT, 230)
        };
        let value = |i: usize| match (self.total(i), divisor(c.lines[i].shape)) {
            (Some(total), Some(divisor)) if relative => {
                format!("{} · {}", ratio(total / divisor), (self.text)(total))
            }
            (Some(total), _) => (self.text)(total),
            // Off the scale as likely as not, so in words.
            (None, _) if self.estimate && c.lines[i].estimate() > 0 => {
                format!("{}, estimated {}", c.lines[i].status(), Bytes(c.lines[i].estimate()))
            }
            (None, _) => c.lines[i].status().into(),
        };

        let pitch = (MOST / c.lines.len() as i32).clamp(6, 19);
        let rows = |shape: usize| c.lines.iter().filter(|line| line.shape == shape).count() as i32;
        let height_of = |shape: usize| (rows(shape) * pitch).max(14) + GROUP_GAP;
        let data: i32 = (0..c.shapes.len()).map(height_of).sum();
        let legend = self.legend(pitch < READABLE);
        let top = TOP + legend.height() + 8;
        let bottom = top + data;

        let left = MARGIN + 10 + (0..c.shapes.len()).map(|s| text_width(&label(s), TEXT)).max().unwrap_or(0);
        let values = (0..c.lines.len()).map(value).map(|text| text_width(&text, SMALL)).max();
        let right = WIDTH - MARGIN - if pitch < READABLE { 0 } else { values.unwrap_or(0) + 8 };
        let scale = Scale::new(range, (left, right), false);

        let svg = svg(bottom + 56, |canvas| {
            canvas.bold(self.title, (MARGIN, 26), TITLE)?;
            legend.draw(canvas, TOP)?;
            let in_unit = Scale::new((0.0, range.1 / unit_scale), (left, right), false);
            for tick in in_unit.ticks(8) {
                let x = in_unit.pixel(tick);
                canvas.line(&[(x, top), (x, bottom)], GRID, 1)?;
                let text = format!("{}{}", tick_label(tick), if relative { "x" } else { "" });
                canvas.text(&text, (x, bottom + 12), SMALL, MUTED, Anchor::Middle)?;
            }
            canvas.text(&axis, ((left + right) / 2, bottom + 36), TEXT, INK, Anchor::Middle)?;
            if relative {
                let one = scale.pixel(1.0);
                canvas.line(&[(one, top), (one, bottom)], MUTED, 1)?;
            }
            let mut y = top + GROUP_GAP / 2;
            for shape in 0..c.shapes.len() {
                let middle = y + (height_of(shape) - GROUP_GAP) / 2;
                canvas.text(&label(shape), (left - 10, middle), TEXT, INK, Anchor::Right)?;
                let mut bar = y;
                for i in (0..c.lines.len()).filter(|&i| c.lines[i].shape == shape) {
                    self.bar(canvas, i, &scale, divisor(shape), (bar, pitch), value(i))?;
                    bar += pitch;
                }
                y += height_of(shape);
            }
            canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
        })?;
        Ok(Chart { name: name.into(), caption, svg })
    }

    fn bar(
        &self,
        canvas: &Canvas,
        i: usize,
        scale: &Scale,
        divisor: Option<f64>,
        (y, pitch): (i32, i32),
        text: String,
    ) -> Result {
        let line = &self.comparison.lines[i];
        let (bottom, middle) = (y + pitch - if pitch < 10 { 1 } else { 2 }, y + (pitch - 1) / 2);
        let mut end = scale.pixel(0.0);
        if let (Some(measured), Some(divisor)) = (line.measured(), divisor) {
            let (parts, mut sum) = ((self.parts)(measured), 0.0);
            for (part, (_, strength)) in parts.iter().zip(PHASES) {
                let from = end;
                sum += part / divisor;
                end = scale.pixel(sum);
                canvas.rect((from, y), (end, bottom), tint(method_color(line.method), strength))?;
            }
            if self.estimate && line.estimate() > 0 {
                let x = scale.pixel(line.estimate() as f64 / divisor);
                canvas.rect((x - 1, y - 1), (x + 1, bottom + 1), INK)?;
                // A text before the stroke would run through it.
                end = end.max(x);
            }
        }
        let color = if line.measured().is_some() { INK } else { ALARM };
        if pitch >= READABLE {
            canvas.rect((end + 4, y), (end + 8 + text_width(&text, SMALL), bottom), WHITE)?;
            canvas.text(&text, (end + 6, middle), SMALL.min(pitch - 3), color, Anchor::Left)
        } else if line.measured().is_none() {
            canvas.cross((end + 6, middle), 2, color)
        } else {
            Ok(())
        }
    }

    fn legend(&self, crosses: bool) -> Legend {
        let mut legend = Legend::default();
        for (method, name) in self.comparison.methods.iter().enumerate() {
            legend.add(Sign::Fill(method_color(method)), name);
        }
        let measured = || self.comparison.lines.iter().filter_map(|line| line.measured());
        let phases = measured().map(|m| (self.parts)(m).len()).max().unwrap_or(0);
        if phases > 1 {
            for (name, strength) in &PHASES[..phases] {
                legend.add(Sign::Fill(tint(MUTED, *strength)), name);
            }
        }
        if self.estimate {
            legend.add(Sign::Stroke, "estimate");
        }
        if crosses && measured().count() < self.comparison.lines.len() {
            legend.add(Sign::Cross, "no measurement (see the table)");
        }
        legend
    }
}
