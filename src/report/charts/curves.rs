//! Learning curves: training loss, and loss and perplexity on held-out text, over the steps taken.
//! One colour a cell.

use super::super::learning::{Learned, trained};
use super::super::table::{Comparison, Line};
use super::Chart;
use super::axis::{Scale, padded, tick_label};
use super::canvas::{
    ALARM, Anchor, Canvas, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, fit, method_color, svg,
    text_width, tint,
};
use super::legend::{Legend, Sign};
use crate::measure::Measurement;
use crate::row::Status;
use crate::text::{and, significant};

/// More curves than this are not told apart in one chart.
const MOST: usize = 8;
/// More charts than this are left to the table.
const CHARTS: usize = 6;
const TOP: i32 = 46;
const PANEL: i32 = 300;
const MARGIN: i32 = 20;
/// From so many steps on, a mean runs over them.
const MANY_STEPS: usize = 100;
/// Pixels between the marks of a curve.
const APART: i32 = 14;
/// Losses above so many times the largest first one are an accident that would hide all others.
const BLOWN_UP: f64 = 1.5;

struct Curve<'c> {
    line: usize,
    /// Which colour and form it has.
    sign: usize,
    measured: &'c Measurement,
    diverged: bool,
}

impl Curve<'_> {
    /// Steps of the running mean; 1 where there is none.
    fn window(&self) -> usize {
        let steps = self.measured.loss.len();
        if steps < MANY_STEPS { 1 } else { (steps / 50).max(10) / 2 * 2 + 1 }
    }

    /// Steps taken before it, and the training loss.
    fn losses(&self) -> Vec<(f64, f64)> {
        self.measured.loss.iter().enumerate().map(|(step, loss)| (step as f64, *loss)).collect()
    }

    /// The mean over the window around each step, as much of it as there is.
    fn means(&self) -> Vec<(f64, f64)> {
        let (losses, half) = (&self.measured.loss, self.window() / 2);
        let mean = |step: usize| {
            let around = &losses[step.saturating_sub(half)..(step + half + 1).min(losses.len())];
            (step as f64, around.iter().sum::<f64>() / around.len() as f64)
        };
        (0..losses.len()).map(mean).collect()
    }

    fn held_out(&self, of: fn(f64) -> f64) -> Vec<(f64, f64)> {
        self.measured.evaluations.iter().map(|e| (e.step as f64, of(e.loss))).collect()
    }
}

/// One chart of all cells that trained; one for each of the sizes where they are more than [`MOST`].
pub fn curves(comparison: &Comparison) -> Result<Vec<Chart>> {
    let of = |shape: Option<usize>| -> Vec<usize> {
        let belongs = |line: &Line| shape.is_none_or(|shape| line.shape == shape) && trained(line).is_some();
        (0..comparison.lines.len()).filter(|&i| belongs(&comparison.lines[i])).collect()
    };
    let all = of(None);
    let shapes: Vec<usize> = (0..comparison.shapes.len()).filter(|&s| !of(Some(s)).is_empty()).collect();
    if all.len() <= MOST || shapes.len() == 1 || comparison.methods.len() == 1 {
        return if all.is_empty() { Ok(Vec::new()) } else { Ok(vec![chart(comparison, all, None)?]) };
    }
    let chart = |&shape: &usize| chart(comparison, of(Some(shape)), Some(shape));
    let mut charts: Vec<Chart> = shapes.iter().take(CHARTS).map(chart).collect::<Result<_>>()?;
    if let (Some(last), more @ 1..) = (charts.last_mut(), shapes.len().saturating_sub(CHARTS)) {
        last.caption.push_str(&format!(" Not drawn: {more} more sizes, which the table has."));
    }
    Ok(charts)
}

/// The baseline and those with the lowest loss at the end, in their order; and the others.
fn choose(comparison: &Comparison, lines: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
    let end = |i: usize| match Learned::of(&comparison.lines[i]) {
        _ if comparison.is_baseline(i) => f64::NEG_INFINITY,
        Some(learned) => learned.end().map_or(learned.train_last, |end| end.loss),
        None => f64::INFINITY,
    };
    let mut ranked = lines.clone();
    ranked.sort_by(|a, b| end(*a).total_cmp(&end(*b)));
    ranked.truncate(MOST);
    lines.into_iter().partition(|i| ranked.contains(i))
}

/// Of the given lines, which are of one shape where one is given.
fn chart(comparison: &Comparison, lines: Vec<usize>, shape: Option<usize>) -> Result<Chart> {
    let (drawn, left_out) = choose(comparison, lines);
    let name = |&i: &usize| match shape {
        Some(_) => comparison.methods[comparison.lines[i].method].clone(),
        None => comparison.name(&comparison.lines[i]),
    };
    // The colours of the other charts, where those tell the cells apart.
    let one_shape = shape.is_some() || comparison.shapes.len() == 1;
    let by_method = one_shape && comparison.methods.len() <= MOST;
    let curves: Vec<Curve> = drawn
        .iter()
        .enumerate()
        .filter_map(|(place, &i)| {
            let line = &comparison.lines[i];
            let diverged = line.row.is_some_and(|row| row.status == Status::Diverged);
            let sign = if by_method { line.method } else { place };
            Some(Curve { line: i, sign, measured: trained(line)?, diverged })
        })
        .collect();
    let mut legend = Legend::default();
    for curve in &curves {
        legend.add(Sign::Marker(curve.sign), &name(&curve.line));
    }
    if curves.iter().any(|curve| curve.diverged) {
        legend.add(Sign::Cross, "diverged");
    }
    let at = shape.map_or(String::new(), |shape| format!(" at {}", comparison.shapes[shape].label));
    let evaluated = curves.iter().any(|curve| !curve.measured.evaluations.is_empty());
    let first = curves.iter().filter_map(|curve| curve.measured.loss.first()).copied().fold(0.0, f64::max);
    let limit = first * BLOWN_UP;
    let top = TOP + legend.height() + 30;
    let svg = svg(top + PANEL + 56, |canvas| {
        let title = format!("Learning curves{at}");
        canvas.bold(&fit(&title, TITLE, (WIDTH - 2 * MARGIN) * 6 / 7), (MARGIN, 26), TITLE)?;
        legend.draw(canvas, TOP)?;
        let (middle, right) = (WIDTH / 2, WIDTH - MARGIN);
        let panel = |sides, values| Panel { sides, top, values, limit };
        if !evaluated {
            return panel((MARGIN, right), Values::Loss).draw(canvas, &curves);
        }
        panel((MARGIN, middle - 14), Values::Loss).draw(canvas, &curves)?;
        panel((middle + 14, right), Values::Perplexity).draw(canvas, &curves)
    })?;
    let chart = match shape {
        Some(shape) => format!("curves-{}", shape + 1),
        None => "curves".into(),
    };
    let mut caption = caption(&curves, &at, evaluated, limit);
    if !left_out.is_empty() {
        let mut names: Vec<String> = left_out.iter().take(4).map(name).collect();
        names.extend((left_out.len() > 4).then(|| format!("{} more", left_out.len() - 4)));
        caption.push_str(&format!(" Not drawn, with higher losses at the end: {}.", and(&names)));
    }
    Ok(Chart { name: chart, caption, svg })
}

fn caption(curves: &[Curve], at: &str, evaluated: bool, limit: f64) -> String {
    let mut windows: Vec<usize> = curves.iter().map(Curve::window).filter(|window| *window > 1).collect();
    windows.sort_unstable();
    let mean = match (windows.first(), windows.last()) {
        (Some(low), Some(high)) if low == high => format!(" (thin; thick: its mean over {low} steps)"),
        (Some(low), Some(high)) => format!(" (thin; thick: its mean over 2 % of the steps, {low} to {high})"),
        _ => String::new(),
    };
    let held_out = if evaluated { " and held-out loss (marks), and held-out perplexity," } else { "" };
    let mut caption = format!("Training loss{mean}{held_out} over the steps taken{at}.");
    let losses = |curve: &Curve| {
        let held_out = curve.measured.evaluations.iter().map(|e| e.loss);
        curve.measured.loss.iter().copied().chain(held_out).any(|loss| loss > limit)
    };
    if curves.iter().any(losses) {
        caption.push_str(&format!(" Losses above {} are drawn at the upper edge.", significant(limit)));
    }
    caption
}

#[derive(Clone, Copy, PartialEq)]
enum Values {
    Loss,
    Perplexity,
}

struct Panel {
    /// Left and right edge.
    sides: (i32, i32),
    top: i32,
    values: Values,
    /// Losses are drawn up to here.
    limit: f64,
}

impl Panel {
    fn draw(&self, canvas: &Canvas, curves: &[Curve]) -> Result {
        let ((from, to), top, bottom) = (self.sides, self.top, self.top + PANEL);
        let (held_out, limit): (fn(f64) -> f64, f64) = match self.values {
            Values::Loss => (|loss| loss, self.limit),
            Values::Perplexity => (f64::exp, self.limit.exp()),
        };
        let train = |curve: &Curve| if self.values == Values::Loss { curve.losses() } else { Vec::new() };
        let points = || curves.iter().flat_map(|c| train(c).into_iter().chain(c.held_out(held_out)));
        let values: Vec<f64> =
            points().map(|(_, value)| value.min(limit)).filter(|v| v.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log = low > 0.0 && high > 10.0 * low;
        let range = padded(&values, log);
        let marks = curves.iter().any(|curve| !curve.measured.evaluations.is_empty());
        let title = match self.values {
            Values::Loss if marks => "loss in nats: lines training, marks held-out",
            Values::Loss => "training loss in nats",
            Values::Perplexity => "held-out perplexity",
        };
        let title = format!("{title}{}", if log { ", logarithmic" } else { "" });
        canvas.text(&title, (from, top - 16), TEXT, INK, Anchor::Left)?;

        let y = Scale::new(range, (bottom, top), log);
        let ticks: Vec<(i32, String)> = y.ticks(6).into_iter().map(|v| (y.pixel(v), tick_label(v))).collect();
        let left = from + 8 + ticks.iter().map(|(_, text)| text_width(text, SMALL)).max().unwrap_or(0);
        for (pixel, text) in &ticks {
            canvas.line(&[(left, *pixel), (to, *pixel)], GRID, 1)?;
            canvas.text(text, (left - 6, *pixel), SMALL, MUTED, Anchor::Right)?;
        }
        let steps = points().map(|(step, _)| step).fold(1.0, f64::max);
        let x = Scale::new((0.0, steps), (left + 6, to - 24), false);
        for tick in x.ticks(5).into_iter().filter(|tick| tick.fract() == 0.0) {
            canvas.text(&tick_label(tick), (x.pixel(tick), bottom + 14), SMALL, MUTED, Anchor::Middle)?;
        }
        canvas.line(&[(left, bottom), (to, bottom)], MUTED, 1)?;
        canvas.text("steps taken", ((left + to) / 2, bottom + 36), TEXT, INK, Anchor::Middle)?;

        let place = |points: Vec<(f64, f64)>| -> Vec<(i32, i32)> {
            points.into_iter().map(|(step, value)| (x.pixel(step), y.pixel(value.min(limit)))).collect()
        };
        // Below the curves that are read.
        for curve in curves.iter().filter(|curve| curve.window() > 1) {
            canvas.line(&thin(place(train(curve))), tint(method_color(curve.sign), 0.3), 1)?;
        }
        for curve in curves {
            let marks = place(curve.held_out(held_out));
            let line = match self.values {
                Values::Loss if curve.window() > 1 => first_of_columns(place(curve.means())),
                Values::Loss => place(train(curve)),
                Values::Perplexity => marks,
            };
            canvas.line(&thin(line), method_color(curve.sign), 2)?;
        }
        for curve in curves {
            for mark in apart(place(curve.held_out(held_out))) {
                canvas.marker(curve.sign, mark, if curves.len() > 4 { 3 } else { 4 })?;
            }
            let end = place(train(curve)).last().copied();
            if let Some(end) = end.filter(|_| curve.diverged) {
                canvas.cross(end, 6, ALARM)?;
            }
        }
        Ok(())
    }
}

/// Of the points in each column of pixels the lowest and the highest: all that can be seen.
fn thin(points: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    let mut out = Vec::new();
    for column in points.chunk_by(|a, b| a.0 == b.0) {
        let place = |y: Option<i32>| column.iter().position(|point| Some(point.1) == y).unwrap_or(0);
        let ys = || column.iter().map(|point| point.1);
        let (low, high) = (place(ys().min()), place(ys().max()));
        out.push(column[low.min(high)]);
        out.extend((low != high).then(|| column[low.max(high)]));
    }
    out
}

/// One point in each column of pixels, for a line that is smooth.
fn first_of_columns(mut points: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    points.dedup_by_key(|point| point.0);
    points
}

/// Marks with room between them, the last among them.
fn apart(marks: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    let mut out: Vec<(i32, i32)> = Vec::new();
    for mark in marks.into_iter().rev() {
        if out.last().is_none_or(|next| next.0 - mark.0 >= APART) {
            out.push(mark);
        }
    }
    out
}

#[cfg(test)]
#[path = "curves_tests.rs"]
mod tests;
