//! The scale of dynamic gradient scalers over the steps, and the steps they skipped.

use itertools::Itertools;

use super::super::alike::groups;
use super::super::table::Comparison;
use super::Chart;
use super::axis::padded;
use super::canvas::{ALARM, Result};
use super::legend::{Legend, Sign};
use super::plot::{Axis, Plot, Ticks};
use crate::common::text::power_of_two;
use crate::measure::ScalerRecord;

/// More lines than this look alike.
const MOST: usize = 8;

/// Nothing without a dynamic scaler that ran to its end and whose scale changed.
pub fn growth(comparison: &Comparison) -> Result<Vec<Chart>> {
    let record = |i: usize| -> Option<(usize, &ScalerRecord)> {
        let line = &comparison.lines[i];
        let dynamic = line.setting("precision.scaler.kind") == "dynamic";
        Some((i, line.measured()?.scaler.as_ref().filter(|_| dynamic)?))
    };
    // Of runs that differ in the seed alone, the first.
    let of_seeds = |i: &usize| {
        let line = &comparison.lines[*i];
        (comparison.problem(line.shape), line.method)
    };
    let records = (0..comparison.lines.len()).filter_map(record).unique_by(|(i, _)| of_seeds(i));
    let mut drawn = groups(records, |(_, a), (_, b)| a.scales == b.scales);
    drawn.truncate(MOST);
    let changes = |record: &ScalerRecord| record.scales.windows(2).any(|pair| pair[0] != pair[1]);
    let records = || drawn.iter().map(|group| group[0].1);
    if !records().any(changes) {
        return Ok(Vec::new());
    }
    let steps = records().map(|record| record.scales.len()).max().unwrap_or(0);
    let one_problem = comparison.problems() == 1;
    let name = |i: usize| match one_problem {
        true => comparison.methods[comparison.lines[i].method].clone(),
        false => comparison.name(&comparison.lines[i]),
    };
    // A method has the look of the other charts, any other cell one that they do not use.
    let look = |place: usize| match one_problem {
        true => comparison.lines[drawn[place][0].0].method,
        false => comparison.methods.len() + place,
    };
    let mut legend = Legend::default();
    for (place, group) in drawn.iter().enumerate() {
        legend.add_few(Sign::Curve(look(place)), group.iter().map(|(i, _)| name(*i)));
    }
    if records().any(|record| record.skipped > 0) {
        legend.add(Sign::Cross, "skipped");
    }
    let scales = records().flat_map(|record| &record.scales);
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
            for (sign, record) in records().enumerate() {
                let points = record.scales.iter().zip(1..).map(|(scale, step)| place(step, *scale));
                canvas.curve(look(sign), &points.collect::<Vec<_>>(), 2)?;
            }
            let mut skipped = records().flat_map(|record| {
                let scale = |step: usize| record.scales.get(step.checked_sub(1)?);
                record.skipped_steps.iter().filter_map(move |&step| Some(place(step, *scale(step)?)))
            });
            skipped.try_for_each(|at| canvas.cross(at, 3, ALARM))
        });
    let seeds = comparison.problems() < comparison.shapes.len();
    let caption = format!(
        "The scale after each step{}. It falls after a skipped step, in which a gradient was not finite, and grows after \
         many steps that were not skipped.",
        if seeds { ", of the first seed" } else { "" }
    );
    Ok(vec![plot.chart(caption)?])
}
