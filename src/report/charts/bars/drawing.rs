//! The picture of grouped bars.

use plotters::style::{RGBColor, WHITE};

use super::super::Chart;
use super::super::axis::Scale;
use super::super::canvas::{
    ALARM, Anchor, Canvas, INK, MUTED, Result, SMALL, TEXT, WIDTH, fit, svg, text_width,
};
use super::super::legend::{Legend, Sign};
use super::super::look::{PHASES, method_color, tint};
use super::super::plot::MARGIN;
use super::Bars;
use crate::common::text::sentence;
use crate::report::table::Group;

const TOP: i32 = 48;
/// From one bar to the next, and of a heading.
const PITCH: i32 = 19;
const HEADING: i32 = 26;
/// The most pixels of a name.
const NAME: i32 = 370;
/// The colour of all bars: they have names.
const COLOR: usize = 0;
/// That of a bar without phases.
const UNDIVIDED: RGBColor = RGBColor(120, 120, 120);

impl Bars<'_, '_> {
    pub fn chart(&self) -> Result<Chart> {
        let c = self.comparison;
        let legend = self.legend();
        let top = TOP + legend.height() + 8;
        let (places, headings, bottom) = self.places(top);
        let name = |group: &Group| match c.methods.len() {
            1 => c.problem_label(group.problem),
            _ => c.methods[group.method].clone(),
        };
        let names: Vec<String> = self.groups.iter().map(|group| fit(&name(group), SMALL, NAME)).collect();
        let values: Vec<String> = self.groups.iter().map(|group| self.value(group)).collect();
        let widest = |texts: &[String]| texts.iter().map(|text| text_width(text, SMALL)).max().unwrap_or(0);
        let (left, right) = (MARGIN + 10 + widest(&names), WIDTH - MARGIN - widest(&values) - 8);
        let longest: Vec<(f64, bool)> = (0..c.problems()).map(|problem| self.longest(problem)).collect();

        let svg = svg(self.title, bottom + MARGIN, |canvas| {
            legend.draw(canvas, TOP)?;
            for (problem, y) in headings {
                let text = fit(&c.problem_label(problem), TEXT, WIDTH - 2 * MARGIN);
                canvas.text(&text, (MARGIN, y), TEXT, INK, Anchor::Left)?;
            }
            for (i, (group, y)) in self.groups.iter().zip(places).enumerate() {
                canvas.text(&names[i], (left - 10, y + PITCH / 2 - 1), SMALL, INK, Anchor::Right)?;
                let (high, _) = longest[group.problem];
                self.bar(
                    canvas,
                    group,
                    (&Scale::new((0.0, high), (left, right), false), high),
                    y,
                    &values[i],
                )?;
                canvas.line(&[(left, y - 1), (left, y + PITCH - 1)], MUTED, 1)?;
            }
            Ok(())
        })?;
        let broken = longest.iter().any(|(_, broken)| *broken);
        let longer = if broken { " A broken bar is longer than it is drawn." } else { "" };
        let spread = match self.groups.iter().any(|group| self.spread(group).is_some()) {
            true => " The thin line is from the least to the largest of its processes.",
            false => "",
        };
        let sizes = c.size_note().map_or_else(String::new, |note| format!(" {}.", sentence(&note)));
        let more = match self.left_out {
            0 => String::new(),
            n => format!(" Not drawn: {n} more, which table.csv has."),
        };
        let scales = if self.has_headings() { " The bars of a size share a scale." } else { "" };
        let caption = format!("{}{scales}{spread}{longer}{more}{sizes}", self.caption);
        Ok(Chart { name: self.name.into(), caption, svg })
    }

    fn bar(
        &self,
        canvas: &Canvas,
        group: &Group,
        (scale, high): (&Scale, f64),
        y: i32,
        text: &str,
    ) -> Result {
        let (bottom, middle) = (y + PITCH - 2, y + PITCH / 2 - 1);
        let mut end = scale.pixel(0.0);
        let total = self.total(group);
        if total.is_some() {
            let (parts, mut sum) = (self.parts(group), 0.0);
            let color = if self.is_undivided(group) { UNDIVIDED } else { method_color(COLOR) };
            for (part, (_, strength)) in parts.iter().zip(PHASES) {
                let from = end;
                sum += part;
                end = scale.pixel(sum.min(high));
                canvas.rect((from, y), (end, bottom), tint(color, strength))?;
            }
            if sum > high {
                for x in [end - 12, end - 6] {
                    canvas.line(&[(x - 3, bottom), (x + 3, y)], WHITE, 2)?;
                }
            }
            if let Some((low, most)) = self.spread(group) {
                let [from, to] = [low, most].map(|value| scale.pixel(value.min(high)));
                canvas.line(&[(from, middle), (to, middle)], INK, 1)?;
                end = end.max(to);
            }
            let estimate = self.estimate(group);
            if self.estimate && estimate > 0.0 && estimate <= high {
                let x = scale.pixel(estimate);
                canvas.rect((x - 1, y - 1), (x + 1, bottom + 1), INK)?;
                // A text before the stroke would run through it.
                end = end.max(x);
            }
        }
        let name = self.comparison.name_of_group(group);
        canvas.hover(
            (scale.pixel(0.0), y),
            (end.max(scale.pixel(0.0) + 8), bottom),
            &format!("{name}: {text}"),
        );
        let color = if total.is_some() { INK } else { ALARM };
        canvas.rect((end + 4, y), (end + 8 + text_width(text, SMALL), bottom), WHITE)?;
        canvas.text(text, (end + 6, middle), SMALL, color, Anchor::Left)
    }

    /// The upper edge of each bar, the middle of each problem's heading, and the lower edge of all.
    fn places(&self, top: i32) -> (Vec<i32>, Vec<(usize, i32)>, i32) {
        let (mut places, mut headings, mut y) = (Vec::new(), Vec::new(), top + 4);
        for (i, group) in self.groups.iter().enumerate() {
            let is_first = i == 0 || self.groups[i - 1].problem != group.problem;
            if is_first && self.has_headings() {
                headings.push((group.problem, y + HEADING / 2));
                y += HEADING;
            }
            places.push(y);
            y += PITCH;
        }
        (places, headings, y + 4)
    }

    fn legend(&self) -> Legend {
        let mut legend = Legend::default();
        let phases = self.groups.iter().map(|group| self.parts(group).len()).max().unwrap_or(0);
        if phases > 1 {
            for (name, strength) in &PHASES[..phases] {
                legend.add(Sign::Fill(tint(method_color(COLOR), *strength)), name);
            }
        }
        if phases > 1 && self.groups.iter().any(|group| self.is_undivided(group)) {
            legend.add(Sign::Fill(UNDIVIDED), "a graph or a pipeline, undivided");
        }
        if self.estimate {
            legend.add(Sign::Stroke, "estimate");
        }
        legend
    }
}
