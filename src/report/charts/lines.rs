//! Time and memory over each swept size: a line for each method, the other sizes held.

use std::collections::BTreeMap;

use super::super::alike::groups;
use super::super::labels::{size_name, size_value};
use super::super::pareto;
use super::prelude::*;

/// Height of one cross.
const STACK: i32 = 15;
/// The columns that are drawn, each in a panel.
const COLUMNS: [&str; 2] = ["step_s_median", "live_peak_bytes"];
/// Bars show fewer values as well.
const LEAST: usize = 3;
/// More lines than this are not told apart.
const MOST: usize = 6;

/// The cells along one axis at fixed other sizes.
struct Sweep {
    key: String,
    /// `sequence length 128, hidden size 512`; empty when nothing else is swept.
    held: String,
    /// Value of the axis and line, rising.
    points: Vec<(f64, usize)>,
}

/// A cell: its other sizes, by name, and its point of a [`Sweep`].
type Point = (Vec<String>, f64, usize);

/// One chart for each swept numeric size with a group of at least three values, at which at least half of the
/// measured methods have two.
pub fn lines(comparison: &Comparison) -> Result<Vec<Chart>> {
    // Seeds have no order.
    let sizes = comparison.sizes.iter().filter(|key| *key != "seed");
    let sweeps = sizes.filter_map(|key| sweep(comparison, key));
    sweeps.map(|sweep| chart(comparison, sweep)).collect()
}

/// Those of the points that were measured.
fn ran<'p>(comparison: &'p Comparison, points: &'p [Point]) -> impl Iterator<Item = &'p Point> {
    points.iter().filter(|(.., i)| comparison.lines[*i].measured().is_some())
}

/// The cells with the most measured values along `key`, at equal other sizes; the first of several.
fn sweep(comparison: &Comparison, key: &str) -> Option<Sweep> {
    let others: Vec<&String> = comparison.sizes.iter().filter(|other| *other != key).collect();
    let point = |(i, line): (usize, &Line)| {
        let settings = &comparison.shapes[line.shape].settings;
        let named = |other: &&String| {
            let value = size_value(other, settings).unwrap_or_else(|| "none".into());
            format!("{} {value}", size_name(other))
        };
        Some((others.iter().map(named).collect(), settings.get(key)?.as_f64()?, i))
    };
    let points: Option<Vec<Point>> = comparison.lines.iter().enumerate().map(point).collect();
    let values = |points: &[Point]| ran(comparison, points).map(|(_, x, _)| x.to_bits()).unique().count();
    // Single points say less than the bars.
    let are_lines = |points: &Vec<Point>| {
        let counts = ran(comparison, points).counts_by(|(.., i)| comparison.lines[*i].method);
        2 * counts.values().filter(|count| **count >= 2).count() >= counts.len()
    };
    let groups = groups(points?, |(a, ..), (b, ..)| a == b).into_iter().filter(are_lines).rev();
    // max_by_key takes the last of equals.
    let mut points = groups.max_by_key(|points| values(points))?;
    points.sort_by(|a, b| a.1.total_cmp(&b.1));
    // A preset stands for its dimensions.
    let named = points[0].0.iter().zip(&others).filter(|(_, size)| comparison.label_sizes.contains(size));
    let held = named.map(|(named, _)| named).join(", ");
    let along = || points.iter().map(|(_, x, i)| (*x, *i)).collect();
    (values(&points) >= LEAST).then(|| Sweep { key: key.into(), held, points: along() })
}

fn chart(comparison: &Comparison, mut sweep: Sweep) -> Result<Chart> {
    let name = size_name(&sweep.key);
    let (drawn, left_out) = choose(comparison, &sweep);
    sweep.points.retain(|(_, i)| drawn.contains(&comparison.lines[*i].method));
    let mut legend = Legend::default();
    if sweep.points.iter().any(|(_, i)| comparison.lines[*i].measured().is_none()) {
        legend.add(Sign::Cross, "no measurement (oom, failed or not run)");
    }
    let held = if sweep.held.is_empty() { String::new() } else { format!(", at {}", sweep.held) };
    let file = format!("lines-{}", sweep.key.replace(['.', '_'], "-"));
    let title = format!("Time and memory over {name}{held}");
    let mut plot = Plot::new(&file, &title, legend, 220).in_rows();
    let right = room(drawn.iter().map(|&method| &comparison.methods[method]));
    let sweep = &sweep;
    for column in COLUMNS {
        let value = move |i: usize| comparison.frame.get(column, i);
        let values: Vec<f64> = sweep.points.iter().filter_map(|(_, i)| value(*i)).collect();
        let (low, high) = extent(&values);
        let xs: Vec<f64> = sweep.points.iter().map(|(x, _)| *x).collect();
        let ends = (xs[0], xs[xs.len() - 1]);
        let log_x = ends.0 > 0.0 && ends.1 >= 8.0 * ends.0;
        // On two logarithmic axes a cost in proportion to the size is a straight line.
        let log_y = low > 0.0 && high >= low * if log_x { 4.0 } else { 10.0 };
        let range = if log_y { padded(&values, true) } else { from_zero(values.into_iter()) };
        let (unit, size) = comparison.frame.unit(column).of_axis(high);
        // The crosses of missing values have a strip of their own above the data.
        let missing = sweep.points.iter().filter(|(_, i)| value(*i).is_none());
        let strip = missing.counts_by(|(x, _)| x.to_bits()).into_values().max().unwrap_or(0) as i32 * STACK;
        let (room, ticks) = ((20, right), Ticks::At(xs));
        let x = Axis { log: log_x, room, ticks, ..Axis::level(name.clone(), ends) };
        let title = format!("{} in {unit}", comparison.frame.heading(column));
        let y = Axis { log: log_y, room: (0, strip), ..Axis::new(title, (range.0 / size, range.1 / size)) };
        plot = plot.panel(x, y, move |canvas, area| {
            draw(canvas, area, comparison, sweep, &|i| Some(value(i)? / size))
        });
    }
    let more = match left_out {
        0 => String::new(),
        n => format!(" Not drawn: {n} more methods, which the tables have."),
    };
    plot.chart(format!("Median step time and measured peak memory over {name}{held}.{more}"))
}

/// The methods with a line: the baseline, those on a Pareto front, and the others in their order; and how many are left out.
fn choose(comparison: &Comparison, sweep: &Sweep) -> (Vec<usize>, usize) {
    let measured = sweep.points.iter().filter(|(_, i)| comparison.lines[*i].measured().is_some());
    let lines = measured.map(|(_, i)| *i).into_group_map_by(|i| comparison.lines[*i].method);
    let mut methods: Vec<usize> = lines.keys().copied().filter(|method| lines[method].len() > 1).collect();
    let groups = comparison.groups();
    let swept = |problem: usize| {
        sweep.points.iter().any(|(_, i)| comparison.shapes[comparison.lines[*i].shape].problem == problem)
    };
    let problems = groups.chunk_by(|a, b| a.problem == b.problem).filter(|of| swept(of[0].problem));
    let fronts =
        problems.flat_map(|of| pareto::front(comparison, of)).map(|group| group.method).collect_vec();
    let is_baseline = |method: &usize| lines[method].iter().any(|&i| comparison.is_baseline(i));
    methods.sort_by_key(|method| (!is_baseline(method), !fronts.contains(method), *method));
    let left_out = methods.len().saturating_sub(MOST);
    methods.truncate(MOST);
    (methods, left_out)
}

/// A value of a cell, in the unit of its axis.
type Value<'v> = &'v dyn Fn(usize) -> Option<f64>;

fn draw(canvas: &Canvas, area: &Area, comparison: &Comparison, sweep: &Sweep, value: Value) -> Result {
    let (mut missing, mut taken): (BTreeMap<i32, i32>, _) = (BTreeMap::new(), Taken::default());
    let mut ends = Vec::new();
    for method in 0..comparison.methods.len() {
        let of_method =
            sweep.points.iter().filter(|(_, i)| comparison.lines[*i].method == method).collect_vec();
        let place = |(at, i): &(f64, usize)| Some(area.at(*at, value(*i)?));
        // A missing value breaks the line: nothing is known there.
        for run in of_method.split(|point| place(point).is_none()) {
            let points: Vec<(i32, i32)> = run.iter().filter_map(|point| place(point)).collect();
            canvas.curve(method, &points, 2)?;
            taken.line(&points);
            points.into_iter().try_for_each(|at| canvas.marker(method, at, 4))?;
        }
        ends.extend(of_method.iter().filter_map(|point| place(point)).next_back().map(|at| (at, method)));
        for (at, _) in of_method.iter().filter(|point| place(point).is_none()) {
            let x = area.x.pixel(*at);
            let stacked = missing.entry(x).or_insert(0);
            let y = area.top + *stacked * STACK;
            *stacked += 1;
            canvas.cross((x, y), 4, ALARM)?;
            canvas.marker(method, (x + 13, y), 3)?;
        }
    }
    ends.sort_by_key(|(at, _)| at.1);
    ends.iter().for_each(|(at, _)| taken.marker(*at));
    ends.into_iter()
        .try_for_each(|(at, method)| taken.name(canvas, area, &comparison.methods[method], (method, at)))
}
