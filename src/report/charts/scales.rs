//! Held-out loss over the scale of static gradient scalers, with that of a dynamic one and of the baseline.

use polars::prelude::{ChunkAgg, Float64Chunked};

use super::super::alike::{groups, within};
use super::prelude::*;
use crate::common::text::power_of_two;

/// Fewer scales are no sweep.
const LEAST: usize = 3;
/// Lines nearer than the axis' length over this cover each other.
const SAME: f64 = 150.0;
/// Where the crosses of runs without a result stand.
const STRIP: i32 = 24;
const KIND: &str = "precision.scaler.kind";

/// The runs at one scale.
struct Point {
    exponent: f64,
    losses: Float64Chunked,
    skipped: f64,
    /// How runs ended that have no loss.
    lost: Vec<String>,
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
    let lost = points.iter().flat_map(|point| &point.lost).unique().join(", ");
    if !lost.is_empty() {
        legend.add(Sign::Cross, &lost);
    }
    let exponents: Vec<f64> = points.iter().map(|point| point.exponent).collect();
    let ends = (exponents[0], exponents[exponents.len() - 1]);
    let label = |exponent: f64| {
        let near = || format!("2^{}", tick_label((exponent * 10.0).round() / 10.0));
        power_of_two(exponent.exp2()).unwrap_or_else(near)
    };
    let x = Axis { label, room: (30, 30), ticks: Ticks::At(exponents), ..Axis::level("static scale", ends) };
    let y = Axis { room: (0, STRIP), ..Axis::new("held-out loss in nats", padded(&values, false)) };
    let title = "Held-out loss over the scale of the loss";
    let plot = Plot::new("scales", title, legend, 300).panel(x, y, |canvas, area| {
        for (method, level) in levels.iter().map(|group| &group[0]) {
            let at = area.y.pixel(*level);
            canvas.curve(*method, &[(area.sides.0, at), (area.sides.1, at)], 2)?;
        }
        draw(canvas, area, &points, sweep)
    });
    let caption = "Loss on held-out text after the last step. Marks are means over all runs of a scale, with their least and \
                   largest loss; skipped: steps of all these runs together.";
    Ok(vec![plot.chart(caption)?])
}

fn draw(canvas: &Canvas, area: &Area, points: &[Point], look: usize) -> Result {
    let (mut means, mut room) = (Vec::new(), Room::default());
    for point in points {
        let x = area.x.pixel(point.exponent);
        if !point.lost.is_empty() {
            canvas.cross((x, area.top + 8), 5, ALARM)?;
        }
        let Some(mean) = point.losses.mean() else { continue };
        let ends = [point.losses.min(), point.losses.max()].map(|end| area.y.pixel(end.unwrap_or(mean)));
        canvas.curve(look, &[(x, ends[0]), (x, ends[1])], 1)?;
        let text = format!("{} skipped", point.skipped);
        if point.skipped > 0.0 && room.takes(&text, x) {
            canvas.text(&text, (x, ends[1] - 12), SMALL, MUTED, Anchor::Center)?;
        }
        means.push(area.at(point.exponent, mean));
    }
    canvas.curve(look, &means, 2)?;
    means.into_iter().try_for_each(|at| canvas.marker(look, at, 4))
}

/// By rising scale.
fn points(comparison: &Comparison) -> Vec<Point> {
    let lines = comparison.lines.iter().enumerate();
    let fixed = lines.filter(|(_, line)| line.row.is_some() && line.setting(KIND) == "static");
    let scaled = fixed.filter_map(|(i, line)| {
        let scale = line.settings.get("precision.scaler.scale")?.as_f64()?;
        Some((scale.log2(), i))
    });
    let scaled = scaled.sorted_by(|a, b| a.0.total_cmp(&b.0)).chunk_by(|(exponent, _)| *exponent);
    let mut points = Vec::new();
    for (exponent, runs) in &scaled {
        let runs: Vec<usize> = runs.map(|(_, i)| i).collect();
        let values = |column| comparison.frame.of_rows(column, runs.iter().copied());
        let is_lost = |i: &&usize| comparison.frame.get("eval_loss", **i).is_none();
        points.push(Point {
            exponent,
            losses: values("eval_loss"),
            skipped: values("skipped_steps").sum().unwrap_or(0.0),
            lost: runs.iter().filter(is_lost).map(|i| comparison.lines[*i].status()).collect(),
        });
    }
    points
}

/// The methods with a dynamic scale and the baseline, each with its mean.
fn levels(comparison: &Comparison) -> Vec<(usize, f64)> {
    let shown = |i: usize| match comparison.lines[i].setting(KIND) {
        "dynamic" => true,
        "static" => false,
        _ => comparison.is_baseline(i),
    };
    let level = |method: usize| {
        let losses = comparison.frame.of_rows("eval_loss", comparison.of_method(method));
        Some((method, losses.mean().filter(|_| comparison.of_method(method).any(shown))?))
    };
    (0..comparison.methods.len()).filter_map(level).collect()
}
