//! One panel of learning curves: the values of every cell over its steps.

use super::super::axis::{Scale, from_zero, padded, tick_label};
use super::super::canvas::{
    ALARM, Anchor, Canvas, GRID, INK, MUTED, Result, SMALL, TEXT, method_color, text_width, tint,
};
use crate::measure::{Evaluation, Measurement};

/// Height of a panel.
pub const PANEL: i32 = 300;
/// From so many steps on, a mean runs over them.
const MANY_STEPS: usize = 100;
/// Pixels between the marks of a curve.
const APART: i32 = 14;

/// One cell's.
pub struct Curve<'c> {
    pub line: usize,
    /// Which colour and form it has.
    pub sign: usize,
    pub measured: &'c Measurement,
    pub diverged: bool,
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

    fn held_out(&self, of: fn(&Evaluation) -> f64) -> Vec<(f64, f64)> {
        self.measured.evaluations.iter().map(|e| (self.at(e.step), of(e))).collect()
    }
}

/// What a panel shows.
#[derive(Clone, Copy, PartialEq)]
pub enum Values {
    Loss,
    Perplexity,
    /// In percent.
    Accuracy,
}

pub struct Panel {
    /// Left and right edge.
    pub sides: (i32, i32),
    pub top: i32,
    pub values: Values,
    /// Losses are drawn up to here.
    pub limit: f64,
}

impl Panel {
    pub fn draw(&self, canvas: &Canvas, curves: &[Curve]) -> Result {
        let ((from, to), top, bottom) = (self.sides, self.top, self.top + PANEL);
        let (held_out, limit): (fn(&Evaluation) -> f64, f64) = match self.values {
            Values::Loss => (|e| e.loss, self.limit),
            Values::Perplexity => (Evaluation::perplexity, self.limit.exp()),
            Values::Accuracy => (|e| e.accuracy * 100.0, 100.0),
        };
        let train = |curve: &Curve| if self.values == Values::Loss { curve.losses() } else { Vec::new() };
        let points = || curves.iter().flat_map(|c| train(c).into_iter().chain(c.held_out(held_out)));
        let values: Vec<f64> =
            points().map(|(_, value)| value.min(limit)).filter(|v| v.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log = low > 0.0 && high > 10.0 * low && self.values != Values::Accuracy;
        let range = match self.values {
            Values::Accuracy => from_zero(values.iter().copied()),
            _ => padded(&values, log),
        };
        let marks = curves.iter().any(|curve| !curve.measured.evaluations.is_empty());
        let title = match self.values {
            Values::Loss if marks => "loss in nats: lines training, marks held-out",
            Values::Loss => "training loss in nats",
            Values::Perplexity => "held-out perplexity",
            Values::Accuracy => "held-out tokens predicted in %",
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
        let by_tokens = curves.iter().any(|curve| curve.tokens.is_some());
        let seen = if by_tokens { "real tokens seen" } else { "steps taken" };
        canvas.text(seen, ((left + to) / 2, bottom + 36), TEXT, INK, Anchor::Middle)?;

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
                Values::Perplexity | Values::Accuracy => marks,
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

/// One point in each column of pixels, for a line that is smooth.
fn first_of_columns(mut points: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    points.dedup_by_key(|point| point.0);
    points
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
