//! The sizes of gradients by powers of two: a line for each method, and fp16's limits.

use super::super::alike::{groups, within};
use super::prelude::*;
use crate::common::text::power_of_two;
use crate::measure::{FIRST, Magnitudes, SMALLEST, SMALLEST_NORMAL};

/// More lines than this look alike.
const MOST: usize = 8;
/// Shares in percent that are nowhere farther apart lie on one another.
const SAME: f64 = 0.3;
/// Numbers from 2^16 on are beyond fp16's largest, 65504.
const LARGEST: i32 = 16;

/// A chart for the first shape where gradients were counted; nothing without one.
pub fn magnitudes(comparison: &Comparison) -> Result<Vec<Chart>> {
    let counted = |line: &Line| -> Option<(usize, usize, Vec<f64>)> {
        let of: &Magnitudes = &line.measured()?.gradient_histogram.as_ref()?.activations;
        Some((line.shape, line.method, of.bins.iter().map(|count| of.share(*count) * 100.0).collect()))
    };
    let mut drawn: Vec<_> = comparison.lines.iter().filter_map(counted).collect();
    let Some(&(first, _, ref bins)) = drawn.first() else { return Ok(Vec::new()) };
    let end = FIRST + bins.len() as i32;
    drawn.retain(|(shape, ..)| *shape == first);
    let mut drawn = groups(drawn, |(_, _, a), (_, _, b)| within(SAME, a, b));
    drawn.truncate(MOST);
    let mut legend = Legend::default();
    for group in &drawn {
        let names = group.iter().map(|(_, method, _)| &comparison.methods[*method]);
        legend.add_few(Sign::Marker(group[0].1), names);
    }
    let x = Axis {
        ticks: Ticks::At((FIRST..=end).step_by(4).map(f64::from).collect()),
        label: |exponent| power_of_two(exponent.exp2()).unwrap_or_default(),
        room: (12, 12),
        ..Axis::level("size, with the scale", (f64::from(FIRST), f64::from(end)))
    };
    let y = Axis {
        // Above the highest curve the limits' names have a line of their own.
        room: (0, 18),
        ..Axis::new(
            "share of the gradients of activations in %, by power of two",
            from_zero(drawn.iter().flat_map(|group| group[0].2.iter().copied())),
        )
    };
    let plot = Plot::new("gradients", "Sizes of gradients", legend, 300).panel(x, y, |canvas, area| {
        for (exponent, what) in [(SMALLEST, "zero"), (SMALLEST_NORMAL, "digits lost"), (LARGEST, "infinite")]
        {
            let x = area.x.pixel(f64::from(exponent));
            canvas.line(&[(x, area.top), (x, area.bottom)], ALARM, 1)?;
            let (at, side) = if exponent == LARGEST { (x + 4, Anchor::Left) } else { (x - 4, Anchor::Right) };
            canvas.text(what, (at, area.top + 8), SMALL, ALARM, side)?;
        }
        for (place, (_, method, shares)) in drawn.iter().map(|group| &group[0]).enumerate() {
            // A bin's value stands at its middle.
            let points = shares.iter().zip(FIRST..).map(|(share, bin)| area.at(f64::from(bin) + 0.5, *share));
            let points: Vec<(i32, i32)> = points.collect();
            canvas.curve(*method, &points, 2)?;
            // Each method has marks at bins of its own, where there is something.
            for point in points.iter().skip(place).step_by(MOST).filter(|point| point.1 < area.bottom) {
                canvas.marker(*method, *point, 3)?;
            }
        }
        Ok(())
    });
    let caption = "Gradients of operators' results in one step after the last, multiplied by the scale where the loss is scaled. fp16 turns gradients left of 2⁻²⁴ into zero.";
    Ok(vec![plot.chart(caption)?])
}
