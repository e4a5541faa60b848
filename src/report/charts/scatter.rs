//! Peak memory against step time, with the Pareto front of each shape.
//!
//! With several shapes both axes are relative to the shape's baseline: sizes differ by more than
//! methods do, and only within a shape can one method replace another.

use super::super::pareto;
use super::super::table::{Comparison, Quantity};
use super::Chart;
use super::axis::{Scale, padded, tick_label};
use super::canvas::{Anchor, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, fit, svg, text_width};
use super::legend::{Legend, Sign};
use crate::words::text::{byte_unit, time_unit};
use plotters::style::RGBColor;

const TOP: i32 = 48;
const PLOT: i32 = 400;
const MARGIN: i32 = 20;
/// Times this far apart stand on a logarithmic axis.
const FAR: f64 = 20.0;
const FRONT: RGBColor = RGBColor(150, 150, 150);

/// A measured cell: seconds and bytes, or shares of the baseline's.
struct Point {
    line: usize,
    x: f64,
    y: f64,
}

/// `None` when no shape has two measured methods, the baseline among them, or where steps are not alike.
pub fn scatter(comparison: &Comparison) -> Result<Option<Chart>> {
    if comparison.with_samplers() {
        return Ok(None);
    }
    let relative = comparison.shapes.len() > 1;
    let points: Vec<Point> = (0..comparison.lines.len())
        .filter_map(|i| {
            let point = |x, y| Some(Point { line: i, x, y });
            if relative {
                return point(comparison.ratio(i, Quantity::Step)?, comparison.ratio(i, Quantity::Peak)?);
            }
            let m = comparison.lines[i].measured()?;
            point(Quantity::Step.of(m), Quantity::Peak.of(m))
        })
        .collect();
    let compared = |shape: usize| points.iter().filter(|p| comparison.lines[p.line].shape == shape).count();
    if !(0..comparison.shapes.len()).any(|shape| compared(shape) > 1) {
        return Ok(None);
    }

    let mut legend = Legend::default();
    for (method, name) in comparison.methods.iter().enumerate() {
        legend.add(Sign::Marker(method), name);
    }
    legend.add(Sign::Line(FRONT), "Pareto front");
    let shape_key = if relative { shape_key(comparison) } else { Vec::new() };
    let top = TOP + legend.height() + 30;
    let bottom = top + PLOT;
    let key_top = bottom + 64;
    let key_rows = shape_key.iter().map(|(_, row, _)| row + 1).max().unwrap_or(0);

    let values = |of: fn(&Point) -> f64| points.iter().map(of).collect::<Vec<_>>();
    let (times, memory) = (values(|p| p.x), values(|p| p.y));
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let log_x = times.iter().any(|time| *time > 0.0 && FAR * time < slowest);
    let (x_range, y_range) = (padded(&times, log_x), padded(&memory, false));
    let ((x_unit, x_scale), (y_unit, y_scale)) = match relative {
        true => (("", 1.0), ("", 1.0)),
        false => (time_unit(x_range.1), byte_unit(y_range.1)),
    };
    let titles = match relative {
        true => ["step time relative to the baseline".into(), "peak memory relative to the baseline".into()],
        false => [format!("step time in {x_unit}"), format!("peak memory in {y_unit}")],
    };
    let suffix = if relative { "x" } else { "" };

    let svg = svg(key_top + key_rows * 18 + 4, |canvas| {
        canvas.bold("Peak memory against step time", (MARGIN, 26), TITLE)?;
        legend.draw(canvas, TOP)?;
        canvas.text(&titles[1], (MARGIN, top - 14), TEXT, INK, Anchor::Left)?;
        let y = Scale::new((y_range.0 / y_scale, y_range.1 / y_scale), (bottom, top), false);
        let ticks: Vec<(i32, String)> =
            y.ticks(7).into_iter().map(|v| (y.pixel(v), format!("{}{suffix}", tick_label(v)))).collect();
        let left = MARGIN + 8 + ticks.iter().map(|(_, text)| text_width(text, SMALL)).max().unwrap_or(0);
        let right = WIDTH - MARGIN;
        for (pixel, text) in &ticks {
            canvas.line(&[(left, *pixel), (right, *pixel)], GRID, 1)?;
            canvas.text(text, (left - 6, *pixel), SMALL, MUTED, Anchor::Right)?;
        }
        let x = Scale::new((x_range.0 / x_scale, x_range.1 / x_scale), (left, right), log_x);
        for tick in x.ticks(8) {
            let pixel = x.pixel(tick);
            canvas.line(&[(pixel, top), (pixel, bottom)], GRID, 1)?;
            canvas.text(
                &format!("{}{suffix}", tick_label(tick)),
                (pixel, bottom + 14),
                SMALL,
                MUTED,
                Anchor::Middle,
            )?;
        }
        let title = format!("{}{}", titles[0], if log_x { ", logarithmic" } else { "" });
        canvas.text(&title, ((left + right) / 2, bottom + 38), TEXT, INK, Anchor::Middle)?;
        let place = |p: &Point| (x.pixel(p.x / x_scale), y.pixel(p.y / y_scale));

        for shape in 0..comparison.shapes.len() {
            let front = pareto::front(comparison, shape);
            let front: Vec<(i32, i32)> =
                front.iter().filter_map(|line| points.iter().find(|p| p.line == *line)).map(place).collect();
            canvas.line(&staircase(&front), FRONT, if relative { 1 } else { 2 })?;
        }
        for point in &points {
            canvas.marker(comparison.lines[point.line].method, place(point), 5)?;
        }
        if relative {
            let labelled: Vec<&Point> = points.iter().filter(|p| !comparison.is_baseline(p.line)).collect();
            let markers: Vec<(i32, i32)> = points.iter().map(place).collect();
            let names: Vec<String> =
                labelled.iter().map(|p| (comparison.lines[p.line].shape + 1).to_string()).collect();
            let anchors: Vec<(i32, i32)> = labelled.iter().map(|p| place(p)).collect();
            for (name, at) in place_numbers(&names, &anchors, &markers, (left, right), (top, bottom)) {
                canvas.text(&name, at, SMALL, INK, Anchor::Middle)?;
            }
        }
        for (at, row, text) in &shape_key {
            canvas.text(text, (*at, key_top + row * 18), SMALL, MUTED, Anchor::Left)?;
        }
        Ok(())
    })?;
    let caption = match relative {
        true => {
            "Peak memory against step time, each shape relative to its baseline; left and below is \
             better. Numbers name the shapes, where there is room for them. Grey: the Pareto front of \
             each shape."
        }
        false => "Peak memory against step time; left and below is better. Grey: the Pareto front.",
    };
    Ok(Some(Chart { name: "pareto".into(), caption: caption.into(), svg }))
}

/// What a front dominates lies above and to the right of its steps.
fn staircase(front: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut path = Vec::new();
    for pair in front.windows(2) {
        path.extend([pair[0], (pair[1].0, pair[0].1)]);
    }
    path.extend(front.last());
    path
}

/// `1  16×128, 512`, in columns: left edge, row and text of each.
fn shape_key(comparison: &Comparison) -> Vec<(i32, i32, String)> {
    let texts: Vec<String> = comparison
        .shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| fit(&format!("{}:  {}", i + 1, shape.label), SMALL, 260))
        .collect();
    let column = texts.iter().map(|text| text_width(text, SMALL)).max().unwrap_or(1) + 24;
    let columns = ((WIDTH - 2 * MARGIN) / column).max(1);
    let place = |i: usize| (MARGIN + i as i32 % columns * column, i as i32 / columns);
    texts.into_iter().enumerate().map(|(i, text)| (place(i).0, place(i).1, text)).collect()
}

/// Puts each number beside its marker where it meets no marker and no other number; one without
/// such a place is left out.
fn place_numbers(
    names: &[String],
    anchors: &[(i32, i32)],
    markers: &[(i32, i32)],
    (left, right): (i32, i32),
    (top, bottom): (i32, i32),
) -> Vec<(String, (i32, i32))> {
    let mut placed: Vec<(String, (i32, i32))> = Vec::new();
    for (name, (x, y)) in names.iter().zip(anchors) {
        // Methods that fall together need their shape's number once.
        if placed.iter().any(|(other, o)| other == name && (o.0 - x).abs() < 16 && (o.1 - y).abs() < 16) {
            continue;
        }
        let half = text_width(name, SMALL) / 2 + 1;
        // A front comes from above and leaves to the right, so left and below come first.
        let beside = [(-12, 0), (0, 15), (-11, 11), (11, 11), (11, -11), (-11, -11), (12, 0), (0, -15)];
        let free = beside.into_iter().map(|(dx, dy)| (x + dx, y + dy)).find(|at| {
            let inside = at.0 - half > left && at.0 + half < right && at.1 - 9 > top && at.1 + 9 < bottom;
            let clear_of_markers =
                markers.iter().all(|m| (m.0 - at.0).abs() > half + 6 || (m.1 - at.1).abs() > 12);
            let clear_of_numbers = placed.iter().all(|(other, o)| {
                (o.0 - at.0).abs() > half + text_width(other, SMALL) / 2 + 1 || (o.1 - at.1).abs() > 15
            });
            inside && clear_of_markers && clear_of_numbers
        });
        if let Some(at) = free {
            placed.push((name.clone(), at));
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_avoid_markers_and_one_another() {
        let names = ["1".to_string(), "2".into(), "1".into()];
        let at = [(100, 100), (100, 100), (101, 100)];
        let placed = place_numbers(&names, &at, &at, (0, 200), (0, 200));
        // Left of the markers, then below them; the second "1" is already there.
        assert_eq!(placed, [("1".to_string(), (88, 100)), ("2".into(), (100, 115))]);
        let full: Vec<(i32, i32)> = (0..20).flat_map(|x| (0..20).map(move |y| (x * 10, y * 10))).collect();
        assert!(place_numbers(&names, &at, &full, (0, 200), (0, 200)).is_empty());
    }

    #[test]
    fn the_front_is_drawn_as_steps() {
        assert_eq!(staircase(&[(0, 0), (4, 9)]), [(0, 0), (4, 0), (4, 9)]);
        assert!(staircase(&[]).is_empty());
    }
}
