//! Peak memory against step time, with the Pareto front of each shape.
//!
//! With several shapes both axes are relative to the shape's baseline: sizes differ by more than
//! methods do, and only within a shape can one method replace another.

use super::super::pareto;
use super::super::table::Comparison;
use super::Chart;
use super::axis::{padded, tick_label};
use super::canvas::{Anchor, Canvas, INK, Result, SMALL, text_width};
use super::legend::{Legend, Sign};
use super::plot::{Area, Axis, Plot, Ticks};
use plotters::style::RGBColor;

/// Times this far apart stand on a logarithmic axis.
const FAR: f64 = 20.0;
const FRONT: RGBColor = RGBColor(150, 150, 150);

/// A measured cell: its line, and time and memory in the units of the axes.
type Point = (usize, f64, f64);

/// Nothing when no shape has two measured methods, the baseline among them, or where steps are not alike.
pub fn scatter(comparison: &Comparison) -> Result<Vec<Chart>> {
    if comparison.with_samplers() {
        return Ok(Vec::new());
    }
    let relative = comparison.shapes.len() > 1;
    let columns = match relative {
        true => ["step_vs_baseline", "live_peak_vs_baseline"],
        false => ["step_s_median", "live_peak_bytes"],
    };
    let [times, memory] = columns.map(|column| comparison.frame.of_rows(column, 0..comparison.lines.len()));
    let axis = |title: &str, column: &str, values: Vec<f64>, log: bool| {
        let (low, high) = padded(&values, log);
        let (unit, size) = comparison.frame.unit(column).of_axis(high);
        let title = match relative {
            true => format!("{title} relative to the baseline"),
            false => format!("{title} in {unit}"),
        };
        let label = if relative { |value| format!("{}x", tick_label(value)) } else { tick_label };
        (Axis { log, label, ticks: Ticks::About(7), ..Axis::new(title, (low / size, high / size)) }, size)
    };
    let times: Vec<f64> = times.iter().flatten().collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let log = times.iter().any(|time| *time > 0.0 && FAR * time < slowest);
    let (x, second) = axis("step time", columns[0], times, log);
    let (y, byte) = axis("peak memory", columns[1], memory.iter().flatten().collect(), false);
    let value = |column: usize, i: usize| comparison.frame.get(columns[column], i);
    let point = |i: usize| Some((i, value(0, i)? / second, value(1, i)? / byte));
    let points: Vec<Point> = (0..comparison.lines.len()).filter_map(point).collect();
    let compared = |shape: usize| points.iter().filter(|p| comparison.lines[p.0].shape == shape).count();
    if !(0..comparison.shapes.len()).any(|shape| compared(shape) > 1) {
        return Ok(Vec::new());
    }

    let mut legend = Legend::of(&comparison.methods, Sign::Marker);
    legend.add(Sign::Line(FRONT), "Pareto front");
    for (i, shape) in comparison.shapes.iter().enumerate().filter(|_| relative) {
        legend.add(Sign::Number(i + 1), &shape.label);
    }
    let plot =
        Plot::new("pareto", "Peak memory against step time", legend, 400)
            .panel(x, y, |canvas, area| draw(canvas, area, comparison, &points));
    let caption = match relative {
        true => {
            "Peak memory against step time, each shape relative to its baseline; left and below is better. Numbers name \
             the shapes, where there is room for them. Grey: the Pareto front of each shape."
        }
        false => "Peak memory against step time; left and below is better. Grey: the Pareto front.",
    };
    Ok(vec![plot.chart(caption)?])
}

fn draw(canvas: &Canvas, area: &Area, comparison: &Comparison, points: &[Point]) -> Result {
    let relative = comparison.shapes.len() > 1;
    let place = |(_, x, y): &Point| area.at(*x, *y);
    for shape in 0..comparison.shapes.len() {
        let front = pareto::front(comparison, shape);
        let front = front.iter().filter_map(|line| points.iter().find(|(i, ..)| i == line)).map(place);
        canvas.line(&staircase(&front.collect::<Vec<_>>()), FRONT, if relative { 1 } else { 2 })?;
    }
    for point in points {
        canvas.marker(comparison.lines[point.0].method, place(point), 5)?;
    }
    if relative {
        let labelled: Vec<&Point> = points.iter().filter(|(i, ..)| !comparison.is_baseline(*i)).collect();
        let markers: Vec<(i32, i32)> = points.iter().map(place).collect();
        let names: Vec<String> =
            labelled.iter().map(|(i, ..)| (comparison.lines[*i].shape + 1).to_string()).collect();
        let anchors: Vec<(i32, i32)> = labelled.iter().map(|p| place(p)).collect();
        for (name, at) in place_numbers(&names, &anchors, &markers, area.sides, (area.top, area.bottom)) {
            canvas.text(&name, at, SMALL, INK, Anchor::Middle)?;
        }
    }
    Ok(())
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

/// Places each number next to its marker where it overlaps no marker and no other number; one without
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
        let near = [(-12, 0), (0, 15), (-11, 11), (11, 11), (11, -11), (-11, -11), (12, 0), (0, -15)];
        let free = near.into_iter().map(|(dx, dy)| (x + dx, y + dy)).find(|at| {
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
