//! Held-out loss over the scale of static gradient scalers, with that of a dynamic one and of the baseline.

use polars::prelude::{ChunkAgg, Float64Chunked};

use super::super::alike::{groups, within};
use super::super::table::Comparison;
use super::Chart;
use super::axis::{extent, padded, tick_label};
use super::canvas::{ALARM, Anchor, MUTED, Result, SMALL};
use super::legend::{Legend, Sign};
use super::plot::{Axis, Plot, Room, Ticks};
use crate::common::text::power_of_two;
use crate::row::Status;

/// Fewer scales are no sweep.
const LEAST: usize = 3;
/// Lines nearer than the axis' length over this cover each other.
const SAME: f64 = 150.0;
/// Where the crosses of runs without a result stand.
const STRIP: i32 = 24;

/// The runs at one scale.
struct Point {
    exponent: f64,
    losses: Float64Chunked,
    skipped: f64,
    /// Whether a run did not come to its end.
    lost: bool,
    /// Whether those without a loss have diverged.
    diverged: bool,
}

/// Nothing where fewer than three static scales ran.
pub fn scales(comparison: &Comparison) -> Result<Vec<Chart>> {
    let points = points(comparison);
    if points.len() < LEAST || points.iter().all(|point| point.losses.is_empty()) {
        return Ok(Vec::new());
    }
    let levels = levels(comparison);
    let losses = points.iter().flat_map(|point| point.losses.iter().flatten());
    let values: Vec<f64> = losses.chain(levels.iter().map(|(_, level)| *level)).collect();
    let (low, high) = extent(&values);
    let covers = |(_, a): &(usize, f64), (_, b): &(usize, f64)| within((high - low) / SAME, &[*a], &[*b]);
    let levels = groups(levels, covers);
    // The line of the sweep has a look that no method has.
    let sweep = comparison.methods.len();
    let mut legend = Legend::default();
    legend.add(Sign::Marker(sweep), "static scale");
    for group in &levels {
        let names = group.iter().map(|(method, _)| &comparison.methods[*method]);
        legend.add_few(Sign::Curve(group[0].0), names);
    }
    if points.iter().any(|point| point.lost) {
        let diverged = points.iter().filter(|point| point.lost).all(|point| point.diverged);
        legend.add(Sign::Cross, if diverged { "diverged" } else { "no result" });
    }
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
        for (method, level) in levels.iter().map(|group| &group[0]) {
            let at = area.y.pixel(*level);
            canvas.curve(*method, &[(area.sides.0, at), (area.sides.1, at)], 2)?;
        }
        let (mut means, mut room) = (Vec::new(), Room::default());
        for point in &points {
            let x = area.x.pixel(point.exponent);
            if point.lost {
                canvas.cross((x, area.top + 8), 5, ALARM)?;
            }
            let Some(mean) = point.losses.mean() else { continue };
            let ends = [point.losses.min(), point.losses.max()].map(|end| area.y.pixel(end.unwrap_or(mean)));
            canvas.curve(sweep, &[(x, ends[0]), (x, ends[1])], 1)?;
            let text = format!("{} skipped", point.skipped);
            if point.skipped > 0.0 && room.takes(&text, x) {
                canvas.text(&text, (x, ends[1] - 12), SMALL, MUTED, Anchor::Middle)?;
            }
            means.push(area.at(point.exponent, mean));
        }
        canvas.curve(sweep, &means, 2)?;
        means.into_iter().try_for_each(|at| canvas.marker(sweep, at, 4))
    });
    let caption = "Loss on held-out text after the last step. Marks are means over all runs of a scale, with their least and \
                   largest loss; skipped: steps of all these runs together.";
    Ok(vec![plot.chart(caption)?])
}

const KIND: &str = "precision.scaler.kind";

/// By rising scale.
fn points(comparison: &Comparison) -> Vec<Point> {
    let exponent = |i: &usize| {
        let line = &comparison.lines[*i];
        let is_static = line.row.is_some() && line.setting(KIND) == "static";
        line.settings.get("precision.scaler.scale")?.as_f64().filter(|_| is_static).map(f64::log2)
    };
    let lines = || 0..comparison.lines.len();
    let mut exponents: Vec<f64> = lines().filter_map(|i| exponent(&i)).collect();
    exponents.sort_by(f64::total_cmp);
    exponents.dedup();
    let point = |own: f64| {
        let runs = || lines().filter(move |i| exponent(i) == Some(own));
        let losses = comparison.frame.of_rows("eval_loss", runs());
        let skipped = comparison.frame.of_rows("skipped_steps", runs()).sum().unwrap_or(0.0);
        let lost = || runs().filter(|&i| comparison.frame.get("eval_loss", i).is_none());
        let diverged = |i: usize| comparison.lines[i].row.is_some_and(|row| row.status == Status::Diverged);
        let (is_lost, diverged) = (lost().next().is_some(), lost().all(diverged));
        Point { exponent: own, lost: is_lost, diverged, losses, skipped }
    };
    exponents.into_iter().map(point).collect()
}

/// The methods with a dynamic scale and the baseline, each with its mean.
fn levels(comparison: &Comparison) -> Vec<(usize, f64)> {
    let shown = |i: usize| match comparison.lines[i].setting(KIND) {
        "dynamic" => true,
        "static" => false,
        _ => comparison.is_baseline(i),
    };
    let of = |method: usize| {
        let losses = comparison.frame.of_rows("eval_loss", comparison.of_method(method));
        Some((method, losses.mean().filter(|_| comparison.of_method(method).any(shown))?))
    };
    (0..comparison.methods.len()).filter_map(of).collect()
}
