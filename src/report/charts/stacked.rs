//! Stacked bars of the parts of something, apart from any comparison.

use super::axis::{Scale, from_zero};
use super::canvas::{Anchor, INK, MUTED, Result, SMALL, TEXT, WIDTH, fit, svg, text_width};
use super::legend::{Legend, Sign};
use super::plot::{Axis, BELOW, MARGIN};
use crate::words::text::significant;

const TOP: i32 = 48;
/// From one bar to the next: a line of text above each.
const PITCH: i32 = 46;

/// A bar with its parts, all bars' in the same order.
pub struct StackedBar {
    pub name: String,
    pub parts: Vec<(&'static str, f64)>,
}

/// The SVG, of parts in this unit.
///
/// # Errors
/// When Plotters cannot draw.
pub fn stacked(title: &str, unit: &str, bars: &[StackedBar]) -> Result<String> {
    let names: Vec<&str> =
        bars.first().map_or(Vec::new(), |bar| bar.parts.iter().map(|(name, _)| *name).collect());
    let legend = Legend::of(&names, Sign::Bar);
    let top = TOP + legend.height() + 8;
    let bottom = top + bars.len() as i32 * PITCH;
    let total = |bar: &StackedBar| bar.parts.iter().map(|(_, value)| value).sum::<f64>();
    let value = |bar: &StackedBar| format!("{} {unit}", significant(total(bar)));
    let widest = bars.iter().map(|bar| text_width(&value(bar), SMALL)).max().unwrap_or(0);
    let (left, right) = (MARGIN, WIDTH - MARGIN - widest - 10);
    let range = from_zero(bars.iter().map(total));
    svg(title, bottom + BELOW, |canvas| {
        legend.draw(canvas, TOP)?;
        Axis::new(format!("memory in {unit}"), range).draw_below(canvas, (left, right), (top, bottom))?;
        let scale = Scale::new(range, (left, right), false);
        for (row, bar) in bars.iter().enumerate() {
            let y = top + row as i32 * PITCH;
            canvas.text(&fit(&bar.name, TEXT, right - left), (left, y + 12), TEXT, INK, Anchor::Left)?;
            let (mut sum, mut end) = (0.0, scale.pixel(0.0));
            for (part, (_, value)) in bar.parts.iter().enumerate() {
                let from = end;
                sum += value;
                end = scale.pixel(sum);
                canvas.bar(part, (from, y + 22), (end, y + PITCH - 4), 1.0)?;
            }
            canvas.text(&value(bar), (end + 6, y + 32), SMALL, INK, Anchor::Left)?;
        }
        canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
    })
}
