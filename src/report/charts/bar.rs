//! [`Bar`]: a horizontal bar with its name before it and its value behind it, so that texts of any length fit on its line.

use super::prelude::*;

/// From one bar to the next.
pub const PITCH: i32 = 19;
/// The most pixels of a name.
const NAME: i32 = 370;

pub struct Bar {
    pub name: String,
    /// Lengths from the axis outwards, each with its colour; none of what was not measured.
    pub parts: Vec<(f64, RGBColor)>,
    /// The ends of a thin line.
    pub spread: Option<(f64, f64)>,
    /// Where an upright stroke stands.
    pub estimate: Option<f64>,
    pub text: String,
}

impl Bar {
    pub fn length(&self) -> Option<f64> {
        (!self.parts.is_empty()).then(|| self.parts.iter().map(|(part, _)| part).sum())
    }

    /// How far it reaches with its spread and its stroke; `None` of what was not measured.
    pub fn reach(&self) -> Option<f64> {
        let high = self.spread.map_or(0.0, |(_, high)| high);
        Some(self.length()?.max(self.estimate.unwrap_or(0.0)).max(high))
    }

    /// Draws it from a height down, its name before the left side; `high` lies at the right one, and a longer bar is broken.
    pub fn draw(&self, canvas: &Canvas, y: i32, sides: (i32, i32), high: f64) -> Result {
        let scale = Scale::new((0.0, high), sides, false);
        let (bottom, middle) = (y + PITCH - 2, y + PITCH / 2 - 1);
        let (mut end, mut sum) = (sides.0, 0.0);
        for (part, color) in &self.parts {
            let from = end;
            sum += part;
            end = scale.pixel(sum.min(high));
            canvas.rect((from, y), (end, bottom), *color)?;
        }
        if sum > high {
            for x in [end - 12, end - 6] {
                canvas.line(&[(x - 3, bottom), (x + 3, y)], WHITE, 2)?;
            }
        }
        if let Some((low, most)) = self.spread {
            let [from, to] = [low, most].map(|value| scale.pixel(value.min(high)));
            canvas.line(&[(from, middle), (to, middle)], INK, 1)?;
            end = end.max(to);
        }
        if let Some(estimate) = self.estimate.filter(|of| *of > 0.0 && *of <= high && sum > 0.0) {
            let x = scale.pixel(estimate);
            canvas.rect((x - 1, y - 1), (x + 1, bottom + 1), INK)?;
            // A text before the stroke would run through it.
            end = end.max(x);
        }
        canvas.hover((sides.0, y), (end.max(sides.0 + 8), bottom), &format!("{}: {}", self.name, self.text));
        let color = if self.parts.is_empty() { ALARM } else { INK };
        canvas.rect((end + 4, y), (end + 8 + text_width(&self.text, SMALL), bottom), WHITE)?;
        canvas.text(&self.text, (end + 6, middle), SMALL, color, Anchor::Left)?;
        canvas.line(&[(sides.0, y - 1), (sides.0, y + PITCH - 1)], MUTED, 1)
    }

    pub fn draw_name(&self, canvas: &Canvas, y: i32, left: i32) -> Result {
        let name = fit(&self.name, SMALL, NAME);
        canvas.text(&name, (left - 10, y + PITCH / 2 - 1), SMALL, INK, Anchor::Right)
    }
}

/// Pixels that the names of bars need before them, and their texts behind them.
pub fn room(bars: &[Bar]) -> (i32, i32) {
    let widest =
        |of: fn(&Bar) -> &String| bars.iter().map(|bar| text_width(of(bar), SMALL)).max().unwrap_or(0);
    (widest(|bar| &bar.name).min(NAME) + 10, widest(|bar| &bar.text) + 8)
}
