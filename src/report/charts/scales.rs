//! Held-out loss over the scale of static gradient scalers, with that of a dynamic one and of the baseline.

use polars::prelude::{ChunkAgg, Float64Chunked};

use super::super::table::Comparison;
use super::Chart;
use super::axis::{padded, tick_label};
use super::canvas::{ALARM, Anchor, MUTED, Result, SMALL, method_color};
use super::legend::{Legend, Sign};
use super::plot::{Axis, Plot, Room, Ticks};
use crate::precision::ScalerConfig;
use crate::words::text::power_of_two;

/// Fewer scales are no sweep.
const FEW: usize = 3;
/// Where the crosses of runs without a result stand.
const STRIP: i32 = 24;

/// The runs at one scale.
struct Point {
    exponent: f64,
    losses: Float64Chunked,
    skipped: f64,
    /// Whether a run did not come to its end.
    lost: bool,
}

/// Nothing where fewer than three static scales ran.
pub fn scales(comparison: &Comparison) -> Result<Vec<Chart>> {
    let points = points(comparison);
    if points.len() < FEW || points.iter().all(|point| point.losses.is_empty()) {
        return Ok(Vec::new());
    }
    let levels = levels(comparison);
    let mut legend = Legend::default();
    legend.add(Sign::Marker(0), "static scale");
    for (place, (name, _)) in levels.iter().enumerate() {
        legend.add(Sign::Line(method_color(place + 1)), name);
    }
    if points.iter().any(|point| point.lost) {
        legend.add(Sign::Cross, "diverged");
    }
    let losses = points.iter().flat_map(|point| point.losses.iter().flatten());
    let values: Vec<f64> = losses.chain(levels.iter().map(|(_, level)| *level)).collect();
    let exponents: Vec<f64> = points.iter().map(|point| point.exponent).collect();
    let x = Axis {
        label: |exponent| match power_of_two(exponent.exp2()) {
            Some(text) => text,
            None => format!("2^{}", tick_label((exponent * 10.0).round() / 10.0)),
        },
        room: (30, 30),
        ..Axis::level("static scale", (exponents[0], exponents[exponents.len() - 1]))
    };
    let x = Axis { ticks: Ticks::At(exponents), ..x };
    let y = Axis { room: (0, STRIP), ..Axis::new("held-out loss in nats", padded(&values, false)) };
    let title = "Held-out loss over the scale of the loss";
    let plot = Plot::new("scales", title, legend, 300).panel(x, y, |canvas, area| {
        for (place, (_, level)) in levels.iter().enumerate() {
            let at = area.y.pixel(*level);
            canvas.line(&[(area.sides.0, at), (area.sides.1, at)], method_color(place + 1), 2)?;
        }
        let (mut means, mut room) = (Vec::new(), Room::default());
        for point in &points {
            let x = area.x.pixel(point.exponent);
            if point.lost {
                canvas.cross((x, area.top + 8), 5, ALARM)?;
            }
            let Some(mean) = point.losses.mean() else { continue };
            let ends = [point.losses.min(), point.losses.max()].map(|end| area.y.pixel(end.unwrap_or(mean)));
            canvas.line(&[(x, ends[0]), (x, ends[1])], method_color(0), 1)?;
            let text = format!("{} skipped", point.skipped);
            if point.skipped > 0.0 && room.takes(&text, x) {
                canvas.text(&text, (x, ends[1] - 12), SMALL, MUTED, Anchor::Middle)?;
            }
            means.push(area.at(point.exponent, mean));
        }
        canvas.line(&means, method_color(0), 2)?;
        means.into_iter().try_for_each(|at| canvas.marker(0, at, 4))
    });
    let caption = "Loss on held-out text after the last step. Marks: means over all runs of a scale, with the least and \
                   the largest; skipped: steps of all its runs together.";
    Ok(vec![plot.chart(caption)?])
}

/// By rising scale.
fn points(comparison: &Comparison) -> Vec<Point> {
    let exponent = |i: &usize| match comparison.lines[*i].cell.precision.scaler {
        Some(ScalerConfig::Static(config)) => comparison.lines[*i].row.map(|_| config.scale.log2()),
        _ => None,
    };
    let lines = || 0..comparison.lines.len();
    let mut exponents: Vec<f64> = lines().filter_map(|i| exponent(&i)).collect();
    exponents.sort_by(f64::total_cmp);
    exponents.dedup();
    let point = |own: f64| {
        let runs = || lines().filter(move |i| exponent(i) == Some(own));
        let losses = comparison.frame.of_rows("eval_loss", runs());
        let skipped = comparison.frame.of_rows("skipped_steps", runs()).sum().unwrap_or(0.0);
        Point { exponent: own, lost: losses.len() < runs().count(), losses, skipped }
    };
    exponents.into_iter().map(point).collect()
}

/// Name and mean of the methods with a dynamic scale and of the baseline.
fn levels<'c>(comparison: &'c Comparison) -> Vec<(&'c str, f64)> {
    let shown = |i: usize| match comparison.lines[i].cell.precision.scaler {
        Some(ScalerConfig::Dynamic(_)) => true,
        Some(ScalerConfig::Static(_)) => false,
        None => comparison.is_baseline(i),
    };
    let of = |(method, name)| {
        let losses = comparison.frame.of_rows("eval_loss", comparison.of_method(method));
        Some((name, losses.mean().filter(|_| comparison.of_method(method).any(shown))?))
    };
    comparison.methods.iter().map(String::as_str).enumerate().filter_map(of).collect()
}
