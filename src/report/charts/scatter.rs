//! Peak memory against step time: a panel for each problem with its Pareto front, where there is a trade. Problems differ by
//! more than methods do, and one method can replace another only at the same sizes.

use itertools::Itertools;
use plotters::style::RGBColor;

use super::super::pareto;
use super::super::table::{Comparison, Group};
use super::Chart;
use super::axis::padded;
use super::canvas::{Canvas, Result};
use super::legend::Legend;
use super::plot::{Area, Axis, Plot};
use super::tags::Taken;

/// More panels than this are left to the table.
const MOST: usize = 6;
/// More names than this crowd a panel.
const NAMED: usize = 6;
const FRONT: RGBColor = RGBColor(150, 150, 150);
const OTHER: RGBColor = RGBColor(190, 190, 190);

/// A measured group, and its time and memory in the units of the axes.
struct Point<'g> {
    group: &'g Group,
    time: f64,
    memory: f64,
}

/// Nothing where no problem has a front of two methods, or where steps do unequal work.
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
    let is_trade = |problem: &usize| pareto::front(comparison, *problem).len() > 1;
    let mut problems: Vec<usize> = (0..comparison.problems()).filter(is_trade).collect();
    if problems.is_empty() {
        return Ok(Vec::new());
    }
    let all = problems.len();
    problems.sort_by_key(|&problem| std::cmp::Reverse(of(problem).count()));
    problems.truncate(MOST);
    problems.sort_unstable();

    let height = if problems.len() == 1 { 380 } else { 230 };
    let mut plot = Plot::new("pareto", "Peak memory against step time", Legend::default(), height);
    for problem in problems {
        let axis = |title: String, column: &str, values: Vec<f64>| {
            let (low, high) = padded(&values, true);
            let (unit, size) = comparison.frame.unit(column).of_axis(high);
            let axis = Axis::new(format!("{title} in {unit}"), (low / size, high / size));
            (Axis { log: true, room: (10, 10), ..axis }, size)
        };
        let label = comparison.problem_label(problem);
        let at =
            if comparison.problems() > 1 && !label.is_empty() { format!("{label}: ") } else { String::new() };
        let times = of(problem).map(|point| point.time).collect();
        let (x, second) = axis("step time".into(), "step_s_median", times);
        let memory = of(problem).map(|point| point.memory).collect();
        let (y, byte) = axis(format!("{at}peak memory"), "live_peak_bytes", memory);
        let of_problem: Vec<Point> = of(problem)
            .map(|point| Point { group: point.group, time: point.time / second, memory: point.memory / byte })
            .collect();
        plot = plot.panel(x, y, move |canvas, area| draw(canvas, area, comparison, &of_problem));
    }
    let mut caption = String::from(
        "Peak memory of tensors against step time; left and below is better. The line is the Pareto front: no method has less of \
         both than one on it. Grey: methods behind the front.",
    );
    if all > MOST {
        caption += &format!(" Shown are {MOST} of {all} sizes; the tables have all.");
    }
    Ok(vec![plot.chart(caption)?])
}

fn draw(canvas: &Canvas, area: &Area, comparison: &Comparison, points: &[Point]) -> Result {
    let place = |point: &Point| area.at(point.time, point.memory);
    let front = pareto::front(comparison, points[0].group.problem);
    let on_front: Vec<&Point> = front
        .iter()
        .filter_map(|group| points.iter().find(|point| point.group.method == group.method))
        .collect();
    let steps = staircase(&on_front.iter().map(|point| place(point)).collect::<Vec<_>>());
    canvas.line(&steps, FRONT, 2)?;
    let is_baseline = |point: &&Point| comparison.is_baseline(point.group.lines[0]);
    // The ends of the front first: they are what it costs and what it saves.
    let ends = [on_front.first(), on_front.last()].into_iter().flatten().copied();
    let named = ends.chain(points.iter().filter(is_baseline)).chain(on_front.iter().copied());
    let named: Vec<&Point> = named.unique_by(|point| point.group.method).take(NAMED).collect();
    let is_front = |point: &Point| front.iter().any(|group| group.method == point.group.method);
    let mut taken = Taken::default();
    taken.line(&steps);
    for point in points {
        let (at, method) = (place(point), point.group.method);
        let is_marked = is_front(point) || named.iter().any(|named| named.group.method == method);
        match is_marked {
            true => canvas.marker(method, at, 5)?,
            false => canvas.rect((at.0 - 3, at.1 - 3), (at.0 + 3, at.1 + 3), OTHER)?,
        }
        taken.marker(at);
        let written = |column: &str| comparison.written_of_group(column, point.group).unwrap_or_default();
        let (time, memory) = (written("step_s_median"), written("live_peak_bytes"));
        canvas.hover_at(at, &format!("{}: {time}, {memory}", comparison.methods[method]));
    }
    for point in named {
        let method = point.group.method;
        taken.name(canvas, area, &comparison.methods[method], (method, place(point)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_drawn_as_steps() {
        assert_eq!(staircase(&[(0, 0), (4, 9)]), [(0, 0), (4, 0), (4, 9)]);
        assert!(staircase(&[]).is_empty());
    }
}
