//! The scale of dynamic gradient scalers over the steps, and the steps they skipped.

use super::super::table::Comparison;
use super::Chart;
use super::axis::{Scale, padded, tick_label};
use super::canvas::{
    ALARM, Anchor, GRID, INK, MUTED, Result, SMALL, TEXT, TITLE, WIDTH, method_color, svg, text_width,
};
use super::legend::{Legend, Sign};
use crate::measure::ScalerRecord;
use crate::precision::ScalerConfig;

/// More lines than this are not told apart.
const MOST: usize = 8;
const TOP: i32 = 46;
const PANEL: i32 = 220;
const MARGIN: i32 = 20;

/// `None` without a dynamic scaler that ran to its end.
pub fn growth(comparison: &Comparison) -> Result<Option<Chart>> {
    let record = |i: usize| -> Option<&ScalerRecord> {
        let line = &comparison.lines[i];
        let dynamic = matches!(line.cell.precision.scaler, Some(ScalerConfig::Dynamic(_)));
        line.measured()?.scaler.as_ref().filter(|_| dynamic)
    };
    let drawn: Vec<(usize, &ScalerRecord)> =
        (0..comparison.lines.len()).filter_map(|i| Some((i, record(i)?))).take(MOST).collect();
    if drawn.is_empty() {
        return Ok(None);
    }
    let mut legend = Legend::default();
    for (place, (i, _)) in drawn.iter().enumerate() {
        legend.add(Sign::Line(method_color(place)), &comparison.name(&comparison.lines[*i]));
    }
    if drawn.iter().any(|(_, record)| record.skipped > 0) {
        legend.add(Sign::Cross, "skipped");
    }
    let top = TOP + legend.height() + 30;
    let bottom = top + PANEL;
    let exponents: Vec<f64> =
        drawn.iter().flat_map(|(_, record)| record.scales.iter().map(|scale| scale.log2())).collect();
    let steps = drawn.iter().map(|(_, record)| record.scales.len()).max().unwrap_or(1).max(2);
    let svg = svg(bottom + 56, |canvas| {
        canvas.bold("Scale of dynamic gradient scalers", (MARGIN, 26), TITLE)?;
        legend.draw(canvas, TOP)?;
        canvas.text("scale, logarithmic", (MARGIN, top - 16), TEXT, INK, Anchor::Left)?;
        let (low, high) = padded(&exponents, false);
        let y = Scale::new((low.min(high - 2.0), high), (bottom, top), false);
        let whole = y.ticks(6).into_iter().filter(|tick| tick.fract() == 0.0);
        let ticks: Vec<(i32, String)> = whole.map(|v| (y.pixel(v), format!("2^{}", tick_label(v)))).collect();
        let left = MARGIN + 8 + ticks.iter().map(|(_, text)| text_width(text, SMALL)).max().unwrap_or(0);
        let right = WIDTH - MARGIN;
        for (pixel, text) in &ticks {
            canvas.line(&[(left, *pixel), (right, *pixel)], GRID, 1)?;
            canvas.text(text, (left - 6, *pixel), SMALL, MUTED, Anchor::Right)?;
        }
        canvas.line(&[(left, bottom), (right, bottom)], MUTED, 1)?;
        let x = Scale::new((1.0, steps as f64), (left + 6, right - 24), false);
        for tick in x.ticks(6).into_iter().filter(|tick| tick.fract() == 0.0) {
            canvas.text(&tick_label(tick), (x.pixel(tick), bottom + 14), SMALL, MUTED, Anchor::Middle)?;
        }
        canvas.text("step", ((left + right) / 2, bottom + 36), TEXT, INK, Anchor::Middle)?;
        let place = |step: usize, scale: f64| (x.pixel(step as f64), y.pixel(scale.log2()));
        for (sign, (_, record)) in drawn.iter().enumerate() {
            let points: Vec<(i32, i32)> =
                record.scales.iter().enumerate().map(|(i, scale)| place(i + 1, *scale)).collect();
            canvas.line(&points, method_color(sign), 2)?;
        }
        for (_, record) in &drawn {
            for step in &record.skipped_steps {
                canvas.cross(place(*step, record.scales[step - 1]), 3, ALARM)?;
            }
        }
        Ok(())
    })?;
    let caption =
        "The scale after each step. It falls after a step that was skipped, since a gradient was not \
                   finite, and grows after many that were not."
            .to_string();
    Ok(Some(Chart { name: "growth".into(), caption, svg }))
}
