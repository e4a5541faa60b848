//! Peak memory against step time: a panel for each problem, with its Pareto front. Problems differ by more than methods do, and
//! one method can replace another only at the same sizes.

use std::collections::BTreeSet;

use super::super::pareto;
use super::super::table::{Comparison, Group};
use super::Chart;
use super::axis::padded;
use super::canvas::{Anchor, Canvas, INK, Result, SMALL, text_width};
use super::legend::{Legend, Sign};
use super::plot::{Area, Axis, Plot};
use plotters::style::RGBColor;

/// A point that takes so many times as long as the median one stands at the edge, with its value: on a common axis it would
/// press all others together, and so would a logarithmic axis.
const FAR: f64 = 6.0;
/// More panels than this are left to the table.
const MOST: usize = 8;
const FRONT: RGBColor = RGBColor(150, 150, 150);
/// Of more methods than this those that are on no front look alike.
const NAMED: usize = 16;
const OTHER: RGBColor = RGBColor(190, 190, 190);
/// Markers nearer than this cover each other.
const NEAR: i32 = 11;
/// The height of a time that is written beside a marker.
const ROW: i32 = 14;

/// A measured group, and its time and memory in the units of the axes.
struct Point<'g> {
    group: &'g Group,
    time: f64,
    memory: f64,
}

/// Nothing where no problem has two measured methods, or where steps do unequal work.
pub fn scatter(comparison: &Comparison) -> Result<Vec<Chart>> {
    if comparison.with_samplers() {
        return Ok(Vec::new());
    }
    let groups = comparison.groups();
    let point = |group| {
        let of = |column| comparison.of_group(column, group);
        Some(Point { group, time: of("step_s_median")?, memory: of("live_peak_bytes")? })
    };
    let points: Vec<Point> = groups.iter().filter_map(point).collect();
    let of = |problem: usize| points.iter().filter(move |point| point.group.problem == problem);
    let mut problems: Vec<usize> = (0..comparison.problems()).filter(|&p| of(p).count() > 1).collect();
    if problems.is_empty() {
        return Ok(Vec::new());
    }
    let all = problems.len();
    problems.sort_by_key(|&problem| std::cmp::Reverse(of(problem).count()));
    problems.truncate(MOST);
    problems.sort_unstable();

    // Nobody distinguishes more: then only the methods of the fronts have a look and a name.
    let crowded = comparison.methods.len() > NAMED;
    let on_front: BTreeSet<usize> = problems
        .iter()
        .flat_map(|&problem| pareto::front(comparison, problem))
        .map(|group| group.method)
        .collect();
    let named = |method: &usize| !crowded || on_front.contains(method);
    let shown: Vec<usize> = (0..comparison.methods.len()).filter(named).collect();
    let names = shown.iter().map(|&method| &comparison.methods[method]);
    let mut legend = Legend::of(names, |i| Sign::Marker(shown[i]));
    if shown.len() < comparison.methods.len() {
        legend.add(Sign::Fill(OTHER), "other methods");
    }
    if problems.iter().any(|&problem| pareto::front(comparison, problem).len() > 1) {
        legend.add(Sign::Line(FRONT), "Pareto front");
    }
    let height = if problems.len() == 1 { 380 } else { 210 };
    let mut plot = Plot::new("pareto", "Peak memory against step time", legend, height);
    let mut far_points = false;
    for problem in problems {
        let mut times: Vec<f64> = of(problem).map(|point| point.time).collect();
        times.sort_by(f64::total_cmp);
        let far = FAR * times[(times.len() - 1) / 2];
        far_points |= times.iter().any(|time| *time > far);
        times.retain(|time| *time <= far);
        let axis = |title: String, column: &str, values: &[f64]| {
            let (low, high) = padded(values, false);
            let (unit, size) = comparison.frame.unit(column).of_axis(high);
            (Axis::new(format!("{title} in {unit}"), (low.max(0.0) / size, high / size)), size)
        };
        let label = comparison.problem_label(problem);
        let at =
            if comparison.problems() > 1 && !label.is_empty() { format!("{label}: ") } else { String::new() };
        let (x, second) = axis("step time".into(), "step_s_median", &times);
        let memory: Vec<f64> = of(problem).map(|point| point.memory).collect();
        let (y, byte) = axis(format!("{at}peak memory"), "live_peak_bytes", &memory);
        let x = Axis { room: (10, if of(problem).any(|point| point.time > far) { 90 } else { 14 }), ..x };
        let y = Axis { room: (10, 10), ..y };
        let of_problem: Vec<Point> = of(problem)
            .map(|point| Point { group: point.group, time: point.time / second, memory: point.memory / byte })
            .collect();
        let far = far / second;
        plot = plot.panel(x, y, move |canvas, area| draw(canvas, area, comparison, &of_problem, far, named));
    }
    let mut caption = String::from(
        "Peak memory of tensors against step time; left and below is better. Markers that would cover one another stand side \
         by side, each with a stroke to its place.",
    );
    if far_points {
        caption += " A point at the right edge, behind the stroke, takes longer than the axis shows: its time is written next to it.";
    }
    if all > MOST {
        caption += &format!(" Shown are {MOST} of {all} sizes; the tables have all.");
    }
    Ok(vec![plot.chart(caption)?])
}

fn draw(
    canvas: &Canvas,
    area: &Area,
    comparison: &Comparison,
    points: &[Point],
    far: f64,
    named: impl Fn(&usize) -> bool,
) -> Result {
    let edge = area.sides.1 - 78;
    let place = |point: &Point| match point.time > far {
        true => (edge + 12, area.y.pixel(point.memory)),
        false => area.at(point.time, point.memory),
    };
    let front: Vec<(i32, i32)> = pareto::front(comparison, points[0].group.problem)
        .iter()
        .filter_map(|group| points.iter().find(|point| point.group.method == group.method))
        .map(place)
        .collect();
    canvas.line(&staircase(&front), FRONT, 2)?;
    if points.iter().any(|point| point.time > far) {
        canvas.line(&[(edge, area.top), (edge, area.bottom)], INK, 1)?;
    }
    let (marked, others): (Vec<&Point>, Vec<&Point>) =
        points.iter().partition(|point| named(&point.group.method));
    let (far_away, near): (Vec<&Point>, Vec<&Point>) = marked.into_iter().partition(|point| point.time > far);
    let places = |points: &[&Point]| points.iter().map(|point| place(point)).collect::<Vec<_>>();
    let right = if far_away.is_empty() { area.sides.1 } else { edge };
    let drawn = apart(&places(&near), (area.sides.0, right));
    let rows = in_rows(&places(&far_away), (area.top, area.bottom));
    let marked: Vec<(&Point, (i32, i32))> =
        near.into_iter().zip(drawn).chain(far_away.into_iter().zip(rows)).collect();
    // A marker that makes room for another is tied to its place.
    for (point, drawn) in &marked {
        canvas.line(&[place(point), *drawn], OTHER, 1)?;
    }
    let dots = others.into_iter().map(|point| (point, place(point)));
    for (point, drawn) in dots.chain(marked) {
        if named(&point.group.method) {
            canvas.marker(point.group.method, drawn, 5)?;
        } else {
            canvas.rect((drawn.0 - 3, drawn.1 - 3), (drawn.0 + 3, drawn.1 + 3), OTHER)?;
        }
        let written = |column: &str| comparison.written_of_group(column, point.group).unwrap_or_default();
        let (time, memory) = (written("step_s_median"), written("live_peak_bytes"));
        canvas.hover_at(drawn, &format!("{}: {time}, {memory}", comparison.methods[point.group.method]));
        if point.time > far {
            let at = (drawn.0 + 10, drawn.1);
            if at.0 + text_width(&time, SMALL) <= area.sides.1 {
                canvas.text(&time, at, SMALL, INK, Anchor::Left)?;
            }
        }
    }
    Ok(())
}

/// The front as steps: what it dominates lies above and to the right.
fn staircase(front: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut path = Vec::new();
    for pair in front.windows(2) {
        path.extend([pair[0], (pair[1].0, pair[0].1)]);
    }
    path.extend(front.last());
    path
}

/// Places for markers so that none covers another: those that would stand side by side, about where they belong, and mostly in
/// their order. With too many of them the first ones are beyond the left edge.
fn apart(places: &[(i32, i32)], (left, right): (i32, i32)) -> Vec<(i32, i32)> {
    let (left, right) = (left + 4, right - 5);
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&i| places[i]);
    let mut out = places.to_vec();
    // The first of the markers that stand together because of it.
    let mut first: Vec<usize> = (0..places.len()).collect();
    for (place, &i) in order.iter().enumerate() {
        out[i].0 = out[i].0.max(left);
        while let Some(&j) = order[..place].iter().find(|&&j| covers(out[i], out[j])) {
            out[i].0 = out[j].0 + NEAR;
            first[i] = first[j];
        }
    }
    for &head in &order {
        let group: Vec<usize> = order.iter().copied().filter(|&i| first[i] == head).collect();
        let moved: i32 = group.iter().map(|&i| out[i].0 - places[i].0).sum();
        let back = (moved / group.len().max(1) as i32).clamp(0, (out[head].0 - left).max(0));
        let moved_back = |i: usize| (out[i].0 - back, out[i].1);
        let others = || order.iter().filter(|&&i| first[i] != head);
        if group.iter().all(|&i| others().all(|&j| !covers(moved_back(i), out[j]))) {
            group.iter().for_each(|&i| out[i].0 -= back);
        }
    }
    for (place, &i) in order.iter().enumerate().rev() {
        out[i].0 = out[i].0.min(right);
        while let Some(&j) = order[place + 1..].iter().find(|&&j| covers(out[i], out[j])) {
            out[i].0 = out[j].0 - NEAR;
        }
    }
    out
}

/// Whether two markers at these places cover one another.
fn covers(a: (i32, i32), b: (i32, i32)) -> bool {
    (a.0 - b.0).abs() < NEAR && (a.1 - b.1).abs() < NEAR
}

/// Places for markers with their times beside them, one in each row: each moves down, or all of them up at the lower edge.
fn in_rows(places: &[(i32, i32)], (top, bottom): (i32, i32)) -> Vec<(i32, i32)> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&i| places[i].1);
    let height = ROW.min((bottom - top) / places.len().max(1) as i32);
    let (mut out, mut next) = (places.to_vec(), top);
    for (place, &i) in order.iter().enumerate() {
        let below = (places.len() - 1 - place) as i32;
        out[i].1 = places[i].1.clamp(next, (bottom - height / 2 - below * height).max(next));
        next = out[i].1 + height;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_marker_covers_another() {
        for right in [200, 110] {
            let placed = apart(&[(100, 100), (102, 101), (98, 99), (100, 140), (20, 100)], (0, right));
            assert_eq!(placed[3..], [(100, 140), (20, 100)]);
            for (i, a) in placed.iter().enumerate() {
                assert_eq!(placed[i + 1..].iter().find(|b| covers(*a, **b)), None, "{placed:?}");
            }
            assert!(placed[2].0 < placed[0].0 && placed[0].0 < placed[1].0, "in their order: {placed:?}");
            assert!(placed.iter().all(|place| place.0 < right), "{placed:?}");
        }
        // About where they belong.
        assert_eq!(apart(&[(100, 9), (100, 9), (100, 9)], (0, 200)), [(89, 9), (100, 9), (111, 9)]);
    }

    #[test]
    fn far_markers_have_a_row_each() {
        let placed = in_rows(&[(9, 50), (9, 52), (9, 10), (9, 199)], (0, 200));
        assert_eq!(placed, [(9, 50), (9, 50 + ROW), (9, 10), (9, 200 - ROW / 2)]);
        let crowded = in_rows(&[(9, 195); 4], (0, 200));
        assert!(crowded.windows(2).all(|pair| pair[1].1 - pair[0].1 == ROW), "{crowded:?}");
        assert!(crowded.iter().all(|(_, y)| (0..200).contains(y)), "{crowded:?}");
    }

    #[test]
    fn the_front_is_drawn_as_steps() {
        assert_eq!(staircase(&[(0, 0), (4, 9)]), [(0, 0), (4, 0), (4, 9)]);
        assert!(staircase(&[]).is_empty());
    }
}
