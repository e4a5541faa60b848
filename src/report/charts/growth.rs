//! The scale of dynamic gradient scalers over the steps, and the steps they skipped.

use super::super::alike::groups;
use super::prelude::*;
use crate::common::text::power_of_two;
use crate::measure::ScalerRecord;

/// More lines than this look alike.
const MOST: usize = 8;

/// Nothing without a dynamic scaler that ran to its end and whose scale changed.
pub fn growth(comparison: &Comparison) -> Result<Vec<Chart>> {
    let all = comparison.groups();
    let mut drawn =
        groups(all.iter().filter_map(|group| Some((group, record(comparison, group)?))), |(_, a), (_, b)| {
            a.scales == b.scales
        });
    drawn.truncate(MOST);
    let records: Vec<&ScalerRecord> = drawn.iter().map(|group| group[0].1).collect();
    let changes = |record: &&ScalerRecord| record.scales.windows(2).any(|pair| pair[0] != pair[1]);
    if !records.iter().any(changes) {
        return Ok(Vec::new());
    }
    // A method has the look of the other charts, any other cell one that they do not use.
    let looks: Vec<usize> = match comparison.problems() {
        1 => drawn.iter().map(|group| group[0].0.method).collect(),
        _ => (comparison.methods.len()..).take(drawn.len()).collect(),
    };
    let mut legend = Legend::default();
    for (look, group) in looks.iter().zip(&drawn) {
        legend.add_few(Sign::Curve(*look), group.iter().map(|(group, _)| comparison.name_of_group(group)));
    }
    if records.iter().any(|record| record.skipped > 0) {
        legend.add(Sign::Cross, "skipped");
    }
    let exponents = records.iter().flat_map(|record| &record.scales).map(|scale| scale.log2());
    let (low, high) = padded(&exponents.collect::<Vec<_>>(), false);
    let steps = records.iter().map(|record| record.scales.len()).max().unwrap_or(0).max(2);
    let x = Axis { ticks: Ticks::Whole(6), ..Axis::level("step", (1.0, steps as f64)) };
    let y = Axis {
        ticks: Ticks::Whole(6),
        label: |exponent| power_of_two(exponent.exp2()).unwrap_or_default(),
        ..Axis::new("scale, logarithmic", (low.min(high - 2.0), high))
    };
    let plot = Plot::new("growth", "Scale of dynamic gradient scalers", legend, 220);
    let plot = plot.panel(x, y, |canvas, area| {
        let place = |step: usize, scale: f64| area.at(step as f64, scale.log2());
        for (look, record) in looks.iter().zip(&records) {
            let points = record.scales.iter().zip(1..).map(|(scale, step)| place(step, *scale));
            canvas.curve(*look, &points.collect::<Vec<_>>(), 2)?;
        }
        let mut skipped = records.iter().flat_map(|record| {
            let scale = |step: usize| record.scales.get(step.checked_sub(1)?);
            record.skipped_steps.iter().filter_map(move |&step| Some(place(step, *scale(step)?)))
        });
        skipped.try_for_each(|at| canvas.cross(at, 3, ALARM))
    });
    let of = if comparison.problems() < comparison.shapes.len() { ", of the first seed" } else { "" };
    Ok(vec![plot.chart(format!(
        "The scale after each step{of}. It falls after a skipped step, in which a gradient was not finite, and grows after many \
         steps that were not skipped."
    ))?])
}

/// Of the first measured cell of a group, where its scale is dynamic.
fn record<'a>(comparison: &Comparison<'a>, group: &Group) -> Option<&'a ScalerRecord> {
    let line = group.lines.iter().map(|&i| &comparison.lines[i]).find(|line| line.measured().is_some())?;
    let is_dynamic = line.setting("precision.scaler.kind") == "dynamic";
    line.measured()?.scaler.as_ref().filter(|_| is_dynamic)
}
