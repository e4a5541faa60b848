//! The picture of grouped bars.

use plotters::style::WHITE;

use super::super::Chart;
use super::super::axis::{Scale, tick_label};
use super::super::basis::Basis;
use super::super::canvas::{
    ALARM, Anchor, Canvas, INK, MUTED, Result, SMALL, TEXT, WIDTH, fit, svg, text_width,
};
use super::super::legend::{Legend, Sign};
use super::super::look::{PHASES, tint};
use super::super::plot::{Axis, BELOW, MARGIN, Ticks};
use super::Bars;
use crate::report::table::Group;
use crate::words::text::sentence;

const TOP: i32 = 48;
const GROUP_GAP: i32 = 12;
/// Height of all bars together that still leaves an A4 page room for a caption.
const MOST: i32 = 940;
/// Below this distance a bar has no room for a line of text.
const READABLE: i32 = 13;

impl Bars<'_, '_> {
    pub fn chart(&self) -> Result<Chart> {
        let c = self.comparison;
        let basis = Basis::new(c, &self.groups, |group| self.total(group));
        let pitch = (MOST / self.groups.len() as i32).clamp(6, 19);
        let of = |problem: usize| self.groups.iter().enumerate().filter(move |(_, of)| of.problem == problem);
        let height_of = |problem: usize| (of(problem).count() as i32 * pitch).max(14) + GROUP_GAP;
        let legend = self.legend(pitch < READABLE);
        let top = TOP + legend.height() + 8;
        let bottom = top + (0..self.problems()).map(height_of).sum::<i32>();

        let labels: Vec<String> = match self.named {
            true => self.groups.iter().map(|group| fit(&c.methods[group.method], SMALL, 370)).collect(),
            false => (0..self.problems()).map(|p| fit(&basis.label(p), TEXT, 230)).collect(),
        };
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

        let svg = svg(self.title, bottom + BELOW, |canvas| {
            legend.draw(canvas, TOP)?;
            axis.draw_below(canvas, (left, right), (top, bottom))?;
            let scale = Scale::new(range, (left, right), false);
            if basis.relative {
                let one = scale.pixel(1.0);
                canvas.line(&[(one, top), (one, bottom)], MUTED, 1)?;
            }
            let mut y = top + GROUP_GAP / 2;
            for problem in 0..self.problems() {
                if !self.named {
                    let middle = y + (height_of(problem) - GROUP_GAP) / 2;
                    canvas.text(&labels[problem], (left - 10, middle), TEXT, INK, Anchor::Right)?;
                }
                for (row, (i, group)) in of(problem).enumerate() {
                    let at = (y + row as i32 * pitch, pitch);
                    if self.named {
                        let middle = at.0 + (pitch - 1) / 2;
                        canvas.text(&labels[i], (left - 10, middle), SMALL, INK, Anchor::Right)?;
                    }
                    self.bar(canvas, group, (&scale, range.1), basis.divisor(problem), at, &values[i])?;
                }
                y += height_of(problem);
            }
            canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
        })?;
        let longer = if broken { " A broken bar is longer than the axis." } else { "" };
        let undivided = match self.groups.iter().any(|group| self.is_undivided(group)) {
            true => " The bar of a graph or a pipeline is not divided.",
            false => "",
        };
        let spread = match self.groups.iter().any(|group| self.spread(group).is_some()) {
            true => " The thin line is from the least to the largest of its processes.",
            false => "",
        };
        let sizes = c.size_note().map_or_else(String::new, |note| format!(" {}.", sentence(&note)));
        let order = if self.named { " Shortest first." } else { "" };
        let more = match self.left_out {
            0 => String::new(),
            n => format!(" Not drawn: {n} more, which table.csv has."),
        };
        let caption = format!(
            "{}{undivided}{spread}{}{longer}{order}{more}{sizes}",
            self.caption,
            basis.note(&self.groups)
        );
        Ok(Chart { name: self.name.into(), caption, svg })
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
            let look = if self.named { 0 } else { group.method };
            for (part, (_, strength)) in parts.iter().zip(PHASES) {
                let from = end;
                sum += part / divisor;
                end = scale.pixel(sum.min(high));
                canvas.bar(look, (from, y), (end, bottom), strength)?;
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
        let names = if self.named { &[][..] } else { &self.comparison.methods };
        let mut legend = Legend::of(names, Sign::Bar);
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
