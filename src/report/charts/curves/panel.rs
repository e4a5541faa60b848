//! One panel of learning curves: the values of every cell over its steps.

use super::super::prelude::*;
use crate::common::text::significant;
use crate::measure::Measurement;

/// From so many steps on, a mean runs over them.
const MANY_STEPS: usize = 100;
/// A difference is drawn up to so many times the median one, and at least up to this many nats.
const FAR: f64 = 4.0;
const LEAST: f64 = 0.05;
/// Pixels between the marks of a curve.
const APART: i32 = 14;

/// The curve of one cell.
pub struct Curve<'c> {
    /// Its colour and marker.
    pub sign: usize,
    pub measured: &'c Measurement,
    /// The baseline's, of another cell.
    pub base: Option<&'c Measurement>,
    /// Real tokens seen before each step and after the last; `None` where steps are counted.
    pub tokens: Option<Vec<f64>>,
}

impl Curve<'_> {
    /// Steps taken, or the real tokens in them.
    fn at(&self, step: usize) -> f64 {
        match &self.tokens {
            None => step as f64,
            Some(tokens) => tokens[step.min(tokens.len() - 1)],
        }
    }

    /// Steps of the running mean; 1 where there is none.
    pub fn window(&self) -> usize {
        let steps = self.measured.loss.len();
        if steps < MANY_STEPS { 1 } else { (steps / 50).max(10) / 2 * 2 + 1 }
    }

    /// What was seen at each evaluation, and by how much its loss is above the baseline's after as many steps.
    pub fn differences(&self) -> Vec<(f64, f64)> {
        let Some(base) = self.base else { return Vec::new() };
        let pairs = self.measured.evaluations.iter().filter_map(|own| {
            let other = base.evaluations.iter().find(|other| other.step == own.step)?;
            Some((self.at(own.step), own.loss - other.loss))
        });
        pairs.collect()
    }

    /// What was seen before each step, and the training loss.
    fn losses(&self) -> Vec<(f64, f64)> {
        self.measured.loss.iter().enumerate().map(|(step, loss)| (self.at(step), *loss)).collect()
    }

    /// The mean over the window around each step, as much of it as there is.
    pub fn means(&self) -> Vec<(f64, f64)> {
        let (losses, half) = (&self.measured.loss, self.window() / 2);
        let mean = |step: usize| {
            let around = &losses[step.saturating_sub(half)..(step + half + 1).min(losses.len())];
            (self.at(step), around.iter().sum::<f64>() / around.len() as f64)
        };
        (0..losses.len()).map(mean).collect()
    }
}

/// What a panel shows.
#[derive(Clone, Copy, PartialEq)]
pub enum Shown {
    Loss,
    /// In percent.
    Accuracy,
    /// The held-out loss less the baseline's: equal curves lie on one another.
    Difference,
}

impl Shown {
    /// What was seen at each evaluation, and its value.
    fn marks(self, curve: &Curve) -> Vec<(f64, f64)> {
        let evaluations = curve.measured.evaluations.iter();
        match self {
            Self::Loss => evaluations.map(|e| (curve.at(e.step), e.loss)).collect(),
            Self::Accuracy => evaluations.map(|e| (curve.at(e.step), e.accuracy * 100.0)).collect(),
            Self::Difference => curve.differences(),
        }
    }

    fn losses(self, curve: &Curve) -> Vec<(f64, f64)> {
        if self == Self::Loss { curve.losses() } else { Vec::new() }
    }
}

/// Adds a panel to a plot; losses are drawn up to the limit.
pub fn panel<'c>(plot: Plot<'c>, curves: &'c [Curve], values: Shown, limit: f64) -> Plot<'c> {
    let limit = match values {
        Shown::Loss => limit,
        Shown::Accuracy => 100.0,
        Shown::Difference => far(curves),
    };
    let points: Vec<(f64, f64)> =
        curves.iter().flat_map(|curve| values.losses(curve).into_iter().chain(values.marks(curve))).collect();
    let heights = points.iter().map(|(_, value)| value.min(limit)).filter(|v| v.is_finite());
    let heights: Vec<f64> = heights.collect();
    let (low, high) = extent(&heights);
    let log = low > 0.0 && high > 10.0 * low && values == Shown::Loss;
    let range = match values {
        Shown::Accuracy => from_zero(heights.into_iter()),
        Shown::Difference => padded(&[low.min(0.0), high.max(0.0)], false),
        _ => padded(&heights, log),
    };
    let marks = curves.iter().any(|curve| !curve.measured.evaluations.is_empty());
    let title = match values {
        Shown::Loss if marks => "loss in nats: lines training, marks held-out",
        Shown::Loss => "training loss in nats",
        Shown::Accuracy => "held-out tokens predicted in %",
        Shown::Difference => "held-out loss above the baseline's in nats",
    };
    let by_tokens = curves.iter().any(|curve| curve.tokens.is_some());
    let seen = if by_tokens { "real tokens seen" } else { "steps taken" };
    let steps = points.iter().map(|(step, _)| *step).fold(1.0, f64::max);
    let x = Axis { ticks: Ticks::Whole(5), ..Axis::level(seen, (0.0, steps)) };
    let y = Axis { log, ..Axis::new(title, range) };
    plot.panel(x, y, move |canvas, area| draw(canvas, area, curves, values, limit))
}

fn draw(canvas: &Canvas, area: &Area, curves: &[Curve], values: Shown, limit: f64) -> Result {
    let place = |points: Vec<(f64, f64)>| -> Vec<(i32, i32)> {
        points.into_iter().map(|(step, value)| area.at(step, value.min(limit))).collect()
    };
    // Below the curves that are read.
    for curve in curves.iter().filter(|curve| curve.window() > 1) {
        canvas.line(&thin(place(values.losses(curve))), tint(method_color(curve.sign), 0.3), 1)?;
    }
    for curve in curves {
        let line = match values {
            Shown::Loss if curve.window() > 1 => place(curve.means()),
            Shown::Loss => place(curve.losses()),
            Shown::Accuracy | Shown::Difference => place(values.marks(curve)),
        };
        canvas.curve(curve.sign, &thin(line), 2)?;
    }
    for curve in curves {
        let (beyond, within): (Vec<_>, Vec<_>) =
            values.marks(curve).into_iter().partition(|(_, value)| *value > limit);
        for mark in apart(place(within)) {
            canvas.marker(curve.sign, mark, if curves.len() > 4 { 3 } else { 4 })?;
        }
        // At the upper edge an arrow shows that the value lies above.
        for (x, y) in apart(place(beyond)) {
            let arrow = [(x - 4, y + 4), (x, y - 3), (x + 4, y + 4)];
            canvas.line(&arrow, method_color(curve.sign), 2)?;
        }
        for ((_, value), at) in values.marks(curve).into_iter().zip(place(values.marks(curve))) {
            canvas.hover_at(at, &significant(value));
        }
    }
    Ok(())
}

/// A few times what curves typically end above the baseline: those that fail are drawn at the upper edge, and hide none of
/// the others.
pub fn far(curves: &[Curve]) -> f64 {
    let mut ends: Vec<f64> =
        curves.iter().filter_map(|curve| Some(curve.differences().last()?.1.abs())).collect();
    ends.sort_by(f64::total_cmp);
    ends.get(ends.len() / 2).map_or(1.0, |typical| (FAR * typical).max(LEAST))
}

/// Of the points in each column of pixels the lowest and the highest: all that can be seen.
pub fn thin(points: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
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

/// Marks with room between them, the last among them.
pub fn apart(marks: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    let mut out: Vec<(i32, i32)> = Vec::new();
    for mark in marks.into_iter().rev() {
        if out.last().is_none_or(|next| next.0 - mark.0 >= APART) {
            out.push(mark);
        }
    }
    out
}
