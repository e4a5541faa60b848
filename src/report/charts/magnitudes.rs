//! The sizes of gradients, by powers of two: one line a method, and fp16's limits.

use super::super::table::{Comparison, Line};
use super::Chart;
use super::axis::{Scale, from_zero, tick_label};
use super::canvas::{ALARM, Anchor, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, method_color, svg};
use super::legend::{Legend, Sign};
use crate::measure::GradientHistogram;
use crate::measure::{FIRST, SMALLEST, SMALLEST_NORMAL};

/// More lines than this are not told apart.
const MOST: usize = 8;
const TOP: i32 = 46;
const PANEL: i32 = 300;
const MARGIN: i32 = 20;
/// Numbers from 2^16 on are beyond fp16's largest, 65504.
const LARGEST: i32 = 16;

/// Of the first of the sizes where gradients were counted; `None` without one.
pub fn magnitudes(comparison: &Comparison) -> Result<Option<Chart>> {
    let counted = |line: &Line| -> Option<GradientHistogram> { line.measured()?.gradient_histogram.clone() };
    let Some(shape) = comparison.lines.iter().find(|line| counted(line).is_some()).map(|line| line.shape)
    else {
        return Ok(None);
    };
    let of_shape = comparison.lines.iter().filter(|line| line.shape == shape);
    let drawn: Vec<(usize, GradientHistogram)> =
        of_shape.filter_map(|line| Some((line.method, counted(line)?))).take(MOST).collect();
    let shares = |histogram: &GradientHistogram| -> Vec<f64> {
        let of = &histogram.activations;
        of.bins.iter().map(|count| of.share(*count) * 100.0).collect()
    };

    let mut legend = Legend::default();
    for (place, (method, _)) in drawn.iter().enumerate() {
        legend.add(Sign::Marker(place), &comparison.methods[*method]);
    }
    let top = TOP + legend.height() + 30;
    let bottom = top + PANEL;
    let end = FIRST + drawn[0].1.activations.bins.len() as i32;
    let svg = svg(bottom + 56, |canvas| {
        canvas.bold("Sizes of gradients", (MARGIN, 26), TITLE)?;
        legend.draw(canvas, TOP)?;
        let (left, right) = (MARGIN + 40, WIDTH - MARGIN);
        let x = Scale::new((f64::from(FIRST), f64::from(end)), (left, right), false);
        let y = Scale::new(
            from_zero(drawn.iter().flat_map(|(_, histogram)| shares(histogram))),
            // Above the highest curve the limits' names have a line of their own.
            (bottom, top + 18),
            false,
        );
        let title = "share of the gradients of activations in %, by power of two";
        canvas.text(title, (MARGIN, top - 16), TEXT, INK, Anchor::Left)?;
        for tick in y.ticks(6) {
            canvas.line(&[(left, y.pixel(tick)), (right, y.pixel(tick))], GRID, 1)?;
            canvas.text(&tick_label(tick), (left - 6, y.pixel(tick)), SMALL, MUTED, Anchor::Right)?;
        }
        for exponent in (FIRST..=end).step_by(4) {
            let at = (x.pixel(f64::from(exponent)), bottom + 14);
            canvas.text(&format!("2^{exponent}"), at, SMALL, MUTED, Anchor::Middle)?;
        }
        let limits = [(SMALLEST, "zero"), (SMALLEST_NORMAL, "digits lost"), (LARGEST, "infinite")];
        for (exponent, _) in limits {
            let at = x.pixel(f64::from(exponent));
            canvas.line(&[(at, top), (at, bottom)], ALARM, 1)?;
        }
        for (exponent, what) in limits {
            let (at, side) = match exponent {
                LARGEST => (4, Anchor::Left),
                _ => (-4, Anchor::Right),
            };
            canvas.text(what, (x.pixel(f64::from(exponent)) + at, top + 8), SMALL, ALARM, side)?;
        }
        canvas.line(&[(left, bottom), (right, bottom)], MUTED, 1)?;
        canvas.text("size, with the scale", ((left + right) / 2, bottom + 36), TEXT, INK, Anchor::Middle)?;
        for (place, (_, histogram)) in drawn.iter().enumerate() {
            // A bin's value stands at its middle.
            let points: Vec<(i32, i32)> = shares(histogram)
                .into_iter()
                .enumerate()
                .map(|(bin, share)| (x.pixel(f64::from(FIRST + bin as i32) + 0.5), y.pixel(share)))
                .collect();
            canvas.line(&points, method_color(place), 2)?;
            // Each method has marks at bins of its own, where there is something.
            for point in points.iter().skip(place).step_by(MOST).filter(|point| point.1 < bottom) {
                canvas.marker(place, *point, 3)?;
            }
        }
        Ok(())
    })?;
    let caption = "Gradients of the results of operators in one step after the last, as backward passed them \
                   on: times the scale where the loss is scaled. fp16 turns what lies left of 2^-24 into zero."
        .to_string();
    Ok(Some(Chart { name: "gradients".into(), caption, svg }))
}
