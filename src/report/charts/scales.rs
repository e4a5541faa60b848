//! Held-out loss over the scale of static gradient scalers, beside a dynamic one and the baseline.

use super::super::learning::Learned;
use super::super::table::Comparison;
use super::Chart;
use super::axis::{Scale, padded, tick_label};
use super::canvas::{
    ALARM, Anchor, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, method_color, svg, text_width,
};
use super::legend::{Legend, Sign};
use crate::precision::ScalerConfig;

/// Fewer scales are no sweep.
const FEW: usize = 3;
const TOP: i32 = 46;
const PANEL: i32 = 300;
const MARGIN: i32 = 20;
/// Where the crosses of runs without a result stand.
const STRIP: i32 = 24;

/// The runs at one scale.
struct Point {
    exponent: f64,
    losses: Vec<f64>,
    skipped: usize,
    /// Runs that did not come to an end.
    lost: usize,
}

/// `None` where fewer than three static scales ran.
pub fn scales(comparison: &Comparison) -> Result<Option<Chart>> {
    let points = points(comparison);
    if points.len() < FEW || points.iter().all(|point| point.losses.is_empty()) {
        return Ok(None);
    }
    let levels = levels(comparison);

    let mut legend = Legend::default();
    legend.add(Sign::Marker(0), "static scale");
    for (place, (name, _)) in levels.iter().enumerate() {
        legend.add(Sign::Line(method_color(place + 1)), name);
    }
    if points.iter().any(|point| point.lost > 0) {
        legend.add(Sign::Cross, "diverged");
    }
    let top = TOP + legend.height() + 30;
    let bottom = top + PANEL;
    let values: Vec<f64> = points
        .iter()
        .flat_map(|point| point.losses.iter().copied())
        .chain(levels.iter().map(|(_, level)| *level))
        .collect();
    let svg = svg(bottom + 56, |canvas| {
        canvas.bold("Held-out loss over the scale of the loss", (MARGIN, 26), TITLE)?;
        legend.draw(canvas, TOP)?;
        canvas.text("held-out loss in nats", (MARGIN, top - 16), TEXT, INK, Anchor::Left)?;
        let y = Scale::new(padded(&values, false), (bottom, top + STRIP), false);
        let ticks: Vec<(i32, String)> = y.ticks(6).into_iter().map(|v| (y.pixel(v), tick_label(v))).collect();
        let left = MARGIN + 8 + ticks.iter().map(|(_, text)| text_width(text, SMALL)).max().unwrap_or(0);
        let right = WIDTH - MARGIN;
        for (pixel, text) in &ticks {
            canvas.line(&[(left, *pixel), (right, *pixel)], GRID, 1)?;
            canvas.text(text, (left - 6, *pixel), SMALL, MUTED, Anchor::Right)?;
        }
        canvas.line(&[(left, bottom), (right, bottom)], MUTED, 1)?;
        let ends = (points[0].exponent, points[points.len() - 1].exponent);
        let x = Scale::new(ends, (left + 30, right - 30), false);
        for (place, (_, level)) in levels.iter().enumerate() {
            let at = y.pixel(*level);
            canvas.line(&[(left, at), (right, at)], method_color(place + 1), 2)?;
        }
        let mut means = Vec::new();
        // Texts of scales that lie close together are left out.
        let (mut free_below, mut free_above) = (i32::MIN, i32::MIN);
        let fits = |text: &str, at: i32, free_from: &mut i32| {
            let half = text_width(text, SMALL) / 2;
            let fits = at - half > *free_from;
            if fits {
                *free_from = at + half + 8;
            }
            fits
        };
        for point in &points {
            let at = x.pixel(point.exponent);
            let name = format!("2^{}", tick_label((point.exponent * 10.0).round() / 10.0));
            if fits(&name, at, &mut free_below) {
                canvas.text(&name, (at, bottom + 14), SMALL, MUTED, Anchor::Middle)?;
            }
            if point.lost > 0 {
                canvas.cross((at, top + 8), 5, ALARM)?;
            }
            let Some(mean) = mean(&point.losses) else { continue };
            let low = point.losses.iter().copied().fold(f64::INFINITY, f64::min);
            let high = point.losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            canvas.line(&[(at, y.pixel(low)), (at, y.pixel(high))], method_color(0), 1)?;
            let text = format!("{} skipped", point.skipped);
            if point.skipped > 0 && fits(&text, at, &mut free_above) {
                canvas.text(&text, (at, y.pixel(high) - 12), SMALL, MUTED, Anchor::Middle)?;
            }
            means.push((at, y.pixel(mean)));
        }
        canvas.line(&means, method_color(0), 2)?;
        for at in means {
            canvas.marker(0, at, 4)?;
        }
        canvas.text("static scale", ((left + right) / 2, bottom + 36), TEXT, INK, Anchor::Middle)
    })?;
    let caption =
        "Loss on held-out text after the last step. Marks: means over all runs of a scale, with the \
                   least and the largest; skipped: steps of all its runs together."
            .to_string();
    Ok(Some(Chart { name: "scales".into(), caption, svg }))
}

/// By rising scale.
fn points(comparison: &Comparison) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for line in comparison.lines.iter().filter(|line| line.row.is_some()) {
        let Some(ScalerConfig::Static(config)) = line.cell.precision.scaler else { continue };
        let exponent = config.scale.log2();
        if !points.iter().any(|point| point.exponent == exponent) {
            points.push(Point { exponent, losses: Vec::new(), skipped: 0, lost: 0 });
        }
        let point = points.iter_mut().find(|point| point.exponent == exponent).expect("just made");
        match Learned::of(line).and_then(|learned| learned.end()) {
            Some(end) => point.losses.push(end.loss),
            None => point.lost += 1,
        }
        point.skipped += line.measured().and_then(|m| m.scaler.as_ref()).map_or(0, |record| record.skipped);
    }
    points.sort_by(|a, b| a.exponent.total_cmp(&b.exponent));
    points
}

/// Name and mean of the methods with a dynamic scale and of the baseline.
fn levels(comparison: &Comparison) -> Vec<(String, f64)> {
    let of = |method: usize| {
        let lines = comparison.lines.iter().enumerate().filter(move |(_, line)| line.method == method);
        let shown = lines.clone().any(|(i, line)| match line.cell.precision.scaler {
            Some(ScalerConfig::Dynamic(_)) => true,
            Some(ScalerConfig::Static(_)) => false,
            None => comparison.is_baseline(i),
        });
        let losses: Vec<f64> =
            lines.filter_map(|(_, line)| Some(Learned::of(line)?.end()?.loss)).filter(|_| shown).collect();
        Some((comparison.methods[method].clone(), mean(&losses)?))
    };
    (0..comparison.methods.len()).filter_map(of).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
