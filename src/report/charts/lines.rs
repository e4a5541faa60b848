//! Time and memory over each swept size: one line a method, the other sizes held.

use std::collections::BTreeMap;

use super::super::labels::{size_name, size_value};
use super::super::table::{Comparison, Quantity};
use super::Chart;
use super::axis::{Scale, from_zero, padded, tick_label};
use super::canvas::{
    ALARM, Anchor, Canvas, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, fit, method_color, svg,
    text_width,
};
use super::legend::{Legend, Sign};
use crate::words::text::{byte_unit, time_unit};

const TOP: i32 = 46;
const PANEL: i32 = 300;
const MARGIN: i32 = 20;
/// Height of one cross.
const STACK: i32 = 15;

/// The cells along one axis at fixed other sizes.
struct Sweep {
    key: String,
    /// `sequence length 128, hidden size 512`; empty when nothing else is swept.
    held: String,
    /// Value of the axis and line, rising.
    points: Vec<(f64, usize)>,
}

/// The other sizes, by name, and the cells along the axis as in [`Sweep`].
type Group = (Vec<String>, Vec<(f64, usize)>);

/// One chart for each swept numeric size with a group of at least two values.
pub fn lines(comparison: &Comparison) -> Result<Vec<Chart>> {
    // A seed is a number without more and less.
    let sizes = comparison.sizes.iter().filter(|key| *key != "seed");
    let sweeps = sizes.filter_map(|key| sweep(comparison, key));
    sweeps.map(|sweep| chart(comparison, &sweep)).collect()
}

/// The group with the most measured values along `key`; the first of equals.
fn sweep(comparison: &Comparison, key: &str) -> Option<Sweep> {
    let others: Vec<&String> = comparison.sizes.iter().filter(|other| *other != key).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (i, line) in comparison.lines.iter().enumerate() {
        let x = line.settings.get(key)?.as_f64()?;
        let named = |other: &&String| {
            let value = size_value(other, &line.settings).unwrap_or_else(|| "none".into());
            format!("{} {value}", size_name(other))
        };
        let held: Vec<String> = others.iter().map(named).collect();
        match groups.iter_mut().find(|(name, _)| *name == held) {
            Some((_, points)) => points.push((x, i)),
            None => groups.push((held, vec![(x, i)])),
        }
    }
    let measured = |points: &[(f64, usize)]| {
        let mut values: Vec<f64> = points
            .iter()
            .filter(|(_, i)| comparison.lines[*i].measured().is_some())
            .map(|(x, _)| *x)
            .collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values.len()
    };
    // max_by_key takes the last of equals.
    let (held, mut points) = groups.into_iter().rev().max_by_key(|(_, points)| measured(points))?;
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A preset stands for its dimensions.
    let told = held.into_iter().zip(&others).filter(|(_, size)| comparison.label_sizes.contains(size));
    let held = told.map(|(named, _)| named).collect::<Vec<_>>().join(", ");
    (measured(&points) >= 2).then(|| Sweep { key: key.into(), held, points })
}

fn chart(comparison: &Comparison, sweep: &Sweep) -> Result<Chart> {
    let name = size_name(&sweep.key);
    let mut legend = Legend::default();
    for (method, label) in comparison.methods.iter().enumerate() {
        legend.add(Sign::Marker(method), label);
    }
    if sweep.points.iter().any(|(_, i)| comparison.lines[*i].measured().is_none()) {
        legend.add(Sign::Cross, "no measurement (oom, failed or not run)");
    }
    let (held, legend_top) = match sweep.held.as_str() {
        "" => (String::new(), TOP),
        held => (format!("at {held}"), TOP + 22),
    };
    let top = legend_top + legend.height() + 30;
    let svg = svg(top + PANEL + 56, |canvas| {
        canvas.bold(&format!("Time and memory over {name}"), (MARGIN, 26), TITLE)?;
        canvas.text(&fit(&held, TEXT, WIDTH - 2 * MARGIN), (MARGIN, 50), TEXT, MUTED, Anchor::Left)?;
        legend.draw(canvas, legend_top)?;
        let middle = WIDTH / 2;
        let panels = [(Quantity::Step, MARGIN, middle - 14), (Quantity::Peak, middle + 14, WIDTH - MARGIN)];
        for (quantity, from, to) in panels {
            panel(canvas, comparison, sweep, quantity, (from, to), top)?;
        }
        Ok(())
    })?;
    let held = if held.is_empty() { String::new() } else { format!(", {held}") };
    Ok(Chart {
        name: format!("lines-{}", sweep.key.replace(['.', '_'], "-")),
        caption: format!("Median step time and measured peak memory over {name}{held}."),
        svg,
    })
}

fn panel(
    canvas: &Canvas,
    comparison: &Comparison,
    sweep: &Sweep,
    quantity: Quantity,
    (from, to): (i32, i32),
    top: i32,
) -> Result {
    let bottom = top + PANEL;
    let value = |i: usize| comparison.lines[i].measured().map(|m| quantity.of(m));
    let values: Vec<f64> = sweep.points.iter().filter_map(|(_, i)| value(*i)).collect();
    let (low, high) =
        values.iter().fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(*v), high.max(*v)));
    let xs: Vec<f64> = sweep.points.iter().map(|(x, _)| *x).collect();
    let (x_low, x_high) = (xs[0], xs[xs.len() - 1]);
    let log_x = x_low > 0.0 && x_high >= 8.0 * x_low;
    // On two logarithmic axes a cost in proportion to the size is a straight line.
    let log_y = low > 0.0 && high >= low * if log_x { 4.0 } else { 10.0 };
    let range = if log_y { padded(&values, true) } else { from_zero(values.iter().copied()) };
    let (unit, unit_scale) = match quantity {
        Quantity::Peak => byte_unit(high),
        _ => time_unit(high),
    };
    let what = if quantity == Quantity::Peak { "peak memory" } else { "step time" };
    let title = format!("{what} in {unit}{}", if log_y { ", logarithmic" } else { "" });
    canvas.text(&title, (from, top - 16), TEXT, INK, Anchor::Left)?;

    // The crosses of missing values have a strip of their own above the data.
    let missing_at = |x: f64| sweep.points.iter().filter(|(at, i)| *at == x && value(*i).is_none()).count();
    let strip = xs.iter().map(|x| missing_at(*x)).max().unwrap_or(0) as i32 * STACK;
    let y = Scale::new((range.0 / unit_scale, range.1 / unit_scale), (bottom, top + strip), log_y);
    let ticks: Vec<(i32, String)> = y.ticks(6).into_iter().map(|v| (y.pixel(v), tick_label(v))).collect();
    let left = from + 8 + ticks.iter().map(|(_, text)| text_width(text, SMALL)).max().unwrap_or(0);
    for (pixel, text) in &ticks {
        canvas.line(&[(left, *pixel), (to, *pixel)], GRID, 1)?;
        canvas.text(text, (left - 6, *pixel), SMALL, MUTED, Anchor::Right)?;
    }
    canvas.line(&[(left, bottom), (to, bottom)], MUTED, 1)?;

    let x = Scale::new((x_low, x_high), (left + 20, to - 24), log_x);
    let mut free_from = i32::MIN;
    for value in &xs {
        let (pixel, text) = (x.pixel(*value), tick_label(*value));
        let half = text_width(&text, SMALL) / 2;
        // A value whose label has no room keeps its points.
        if pixel - half > free_from {
            canvas.text(&text, (pixel, bottom + 14), SMALL, MUTED, Anchor::Middle)?;
            free_from = pixel + half + 8;
        }
    }
    let axis = format!("{}{}", size_name(&sweep.key), if log_x { " (logarithmic)" } else { "" });
    canvas.text(&axis, ((left + to) / 2, bottom + 36), TEXT, INK, Anchor::Middle)?;

    let mut missing: BTreeMap<i32, i32> = BTreeMap::new();
    for method in 0..comparison.methods.len() {
        let of_method = || sweep.points.iter().filter(|(_, i)| comparison.lines[*i].method == method);
        let place = |x_value: f64, v: f64| (x.pixel(x_value), y.pixel(v / unit_scale));
        // A missing value breaks the line: nothing is known there.
        let mut run = Vec::new();
        for (at, i) in of_method() {
            match value(*i) {
                Some(v) => run.push(place(*at, v)),
                None => {
                    canvas.line(&run, method_color(method), 2)?;
                    run.clear();
                    let stacked = missing.entry(x.pixel(*at)).or_insert(0);
                    let at = (x.pixel(*at), top + *stacked * STACK);
                    *stacked += 1;
                    canvas.cross(at, 4, ALARM)?;
                    canvas.marker(method, (at.0 + 13, at.1), 3)?;
                }
            }
        }
        canvas.line(&run, method_color(method), 2)?;
        for (at, i) in of_method() {
            if let Some(v) = value(*i) {
                canvas.marker(method, place(*at, v), 4)?;
            }
        }
    }
    Ok(())
}
