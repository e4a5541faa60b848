//! The scale of dynamic gradient scalers over the steps, and the steps they skipped.

use super::super::table::Comparison;
use super::Chart;
use super::axis::padded;
use super::canvas::{ALARM, Result, method_color};
use super::legend::{Legend, Sign};
use super::plot::{Axis, Plot, Ticks};
use crate::measure::ScalerRecord;
use crate::precision::ScalerConfig;
use crate::words::text::{and, power_of_two};

/// More lines than this look alike.
const MOST: usize = 8;

/// Nothing without a dynamic scaler that ran to its end and whose scale changed.
pub fn growth(comparison: &Comparison) -> Result<Vec<Chart>> {
    let record = |i: usize| -> Option<(usize, &ScalerRecord)> {
        let line = &comparison.lines[i];
        let dynamic = matches!(line.cell.precision.scaler, Some(ScalerConfig::Dynamic(_)));
        Some((i, line.measured()?.scaler.as_ref().filter(|_| dynamic)?))
    };
    // Equal curves would cover each other: they are one, with all their names.
    let mut drawn: Vec<(Vec<usize>, &ScalerRecord)> = Vec::new();
    for (i, record) in (0..comparison.lines.len()).filter_map(record) {
        match drawn.iter_mut().find(|(_, other)| other.scales == record.scales) {
            Some((lines, _)) => lines.push(i),
            None => drawn.push((vec![i], record)),
        }
    }
    drawn.truncate(MOST);
    let changes = |record: &ScalerRecord| record.scales.windows(2).any(|pair| pair[0] != pair[1]);
    if !drawn.iter().any(|(_, record)| changes(record)) {
        return Ok(Vec::new());
    }
    let steps = drawn.iter().map(|(_, record)| record.scales.len()).max().unwrap_or(0);
    let names =
        drawn.iter().map(|(lines, _)| and(lines.iter().map(|&i| comparison.name(&comparison.lines[i]))));
    let mut legend = Legend::of(names, |place| Sign::Line(method_color(place)));
    if drawn.iter().any(|(_, record)| record.skipped > 0) {
        legend.add(Sign::Cross, "skipped");
    }
    let scales = drawn.iter().flat_map(|(_, record)| &record.scales);
    let (low, high) = padded(&scales.map(|scale| scale.log2()).collect::<Vec<_>>(), false);
    let x = Axis { ticks: Ticks::Whole(6), ..Axis::level("step", (1.0, steps.max(2) as f64)) };
    let y = Axis {
        ticks: Ticks::Whole(6),
        label: |exponent| power_of_two(exponent.exp2()).unwrap_or_default(),
        ..Axis::new("scale, logarithmic", (low.min(high - 2.0), high))
    };
    let plot =
        Plot::new("growth", "Scale of dynamic gradient scalers", legend, 220).panel(x, y, |canvas, area| {
            let place = |step: usize, scale: f64| area.at(step as f64, scale.log2());
            for (sign, (_, record)) in drawn.iter().enumerate() {
                let points = record.scales.iter().zip(1..).map(|(scale, step)| place(step, *scale));
                canvas.line(&points.collect::<Vec<_>>(), method_color(sign), 2)?;
            }
            let skipped = drawn.iter().flat_map(|(_, record)| {
                record.skipped_steps.iter().map(|step| place(*step, record.scales[step - 1]))
            });
            skipped.into_iter().try_for_each(|at| canvas.cross(at, 3, ALARM))
        });
    let caption = "The scale after each step. It falls after a step that was skipped, since a gradient was not finite, \
                   and grows after many that were not.";
    Ok(vec![plot.chart(caption)?])
}
