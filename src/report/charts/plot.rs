//! [`Plot`]: the common parts of charts with axes: title, legend, panels with their ticks, grid and axis titles. A chart gives its
//! axes and draws its data; this module makes room for the labels, so that they never meet.

use super::prelude::*;

pub const MARGIN: i32 = 20;
const TOP: i32 = 46;
/// Above a panel, for the title of its upright axis.
const ABOVE: i32 = 30;
/// Below a panel, for the ticks and the title of its level axis.
pub const BELOW: i32 = 56;

/// Where ticks stand.
pub enum Ticks {
    /// About so many round values.
    About(usize),
    /// Those of them that are whole numbers.
    Whole(usize),
    /// At these values, as long as their labels have room.
    At(Vec<f64>),
}

pub struct Axis {
    pub title: String,
    pub range: (f64, f64),
    pub log: bool,
    pub ticks: Ticks,
    pub label: fn(f64) -> String,
    /// Pixels kept free at the low and at the high end.
    pub room: (i32, i32),
    /// Whether a line runs through the panel at each tick.
    pub grid: bool,
}

impl Axis {
    pub fn new(title: impl Into<String>, range: (f64, f64)) -> Self {
        let (title, ticks) = (title.into(), Ticks::About(6));
        Self { title, range, log: false, ticks, label: tick_label, room: (0, 0), grid: true }
    }

    /// A level axis: no lines, and room for points at its ends.
    pub fn level(title: impl Into<String>, range: (f64, f64)) -> Self {
        Self { room: (6, 24), grid: false, ..Self::new(title, range) }
    }

    fn scale(&self, (from, to): (i32, i32)) -> Scale {
        let way = (to - from).signum();
        Scale::new(self.range, (from + way * self.room.0, to - way * self.room.1), self.log)
    }

    /// Pixel and label of each tick.
    fn ticks(&self, scale: &Scale) -> Vec<(i32, String)> {
        let values = match &self.ticks {
            Ticks::About(count) => scale.ticks(*count),
            Ticks::Whole(count) => {
                scale.ticks(*count).into_iter().filter(|tick| tick.fract() == 0.0).collect()
            }
            Ticks::At(values) => values.clone(),
        };
        values.into_iter().map(|value| (scale.pixel(value), (self.label)(value))).collect()
    }

    fn title(&self) -> String {
        format!("{}{}", self.title, if self.log { ", logarithmic" } else { "" })
    }

    /// Draws it below a panel with these sides and this top and bottom.
    pub fn draw_below(&self, canvas: &Canvas, sides: (i32, i32), (top, bottom): (i32, i32)) -> Result<Scale> {
        let scale = self.scale(sides);
        let mut room = Room::default();
        for (x, text) in self.ticks(&scale) {
            if self.grid {
                canvas.line(&[(x, top), (x, bottom)], GRID, 1)?;
            }
            if room.takes(&text, x) {
                canvas.text(&text, (x, bottom + 14), SMALL, MUTED, Anchor::Center)?;
            }
        }
        canvas.text(&self.title(), ((sides.0 + sides.1) / 2, bottom + 36), TEXT, INK, Anchor::Center)?;
        Ok(scale)
    }
}

/// A line of small texts from left to right; a text without room is left out.
#[derive(Default)]
pub struct Room(Option<i32>);

impl Room {
    /// Whether a text centred at `x` has room; then it takes it.
    pub fn takes(&mut self, text: &str, x: i32) -> bool {
        let half = text_width(text, SMALL) / 2;
        let free = self.0.is_none_or(|taken| x - half > taken);
        if free {
            self.0 = Some(x + half + 8);
        }
        free
    }
}

/// Where a panel's data stand.
pub struct Area {
    pub x: Scale,
    pub y: Scale,
    pub sides: (i32, i32),
    pub top: i32,
    pub bottom: i32,
}

impl Area {
    pub fn at(&self, x: f64, y: f64) -> (i32, i32) {
        (self.x.pixel(x), self.y.pixel(y))
    }
}

type Draw<'d> = Box<dyn Fn(&Canvas, &Area) -> Result + 'd>;

struct Panel<'d> {
    x: Axis,
    y: Axis,
    draw: Draw<'d>,
}

/// A chart of panels with axes, two side by side unless each has a row of its own.
pub struct Plot<'d> {
    name: String,
    title: String,
    legend: Legend,
    height: i32,
    in_rows: bool,
    panels: Vec<Panel<'d>>,
}

impl<'d> Plot<'d> {
    /// `height` is that of each panel.
    pub fn new(name: &str, title: &str, legend: Legend, height: i32) -> Self {
        let (name, title) = (name.into(), title.into());
        Self { name, title, legend, height, in_rows: false, panels: Vec::new() }
    }

    /// Each panel has a row of its own.
    pub fn in_rows(self) -> Self {
        Self { in_rows: true, ..self }
    }

    pub fn panel(mut self, x: Axis, y: Axis, draw: impl Fn(&Canvas, &Area) -> Result + 'd) -> Self {
        self.panels.push(Panel { x, y, draw: Box::new(draw) });
        self
    }

    /// # Errors
    /// When Plotters cannot draw.
    pub fn chart(&self, caption: impl Into<String>) -> Result<Chart> {
        let top = TOP + self.legend.height() + ABOVE;
        let pitch = self.height + ABOVE + BELOW;
        let columns = if self.in_rows { 1 } else { 2 };
        let rows = self.panels.len().div_ceil(columns) as i32;
        let svg = svg(&self.title, top + rows * pitch - ABOVE, |canvas| {
            self.legend.draw(canvas, TOP)?;
            for (i, panel) in self.panels.iter().enumerate() {
                let sides = match i % columns {
                    0 if columns == 1 || i + 1 == self.panels.len() => (MARGIN, WIDTH - MARGIN),
                    0 => (MARGIN, WIDTH / 2 - 14),
                    _ => (WIDTH / 2 + 14, WIDTH - MARGIN),
                };
                panel.draw(canvas, sides, top + (i / columns) as i32 * pitch, self.height)?;
            }
            Ok(())
        })?;
        Ok(Chart { name: self.name.clone(), caption: caption.into(), svg })
    }
}

impl Panel<'_> {
    fn draw(&self, canvas: &Canvas, (from, to): (i32, i32), top: i32, height: i32) -> Result {
        let bottom = top + height;
        canvas.text(&self.y.title(), (from, top - 16), TEXT, INK, Anchor::Left)?;
        let y = self.y.scale((bottom, top));
        let ticks = self.y.ticks(&y);
        let left = from + 8 + ticks.iter().map(|(_, text)| text_width(text, SMALL)).max().unwrap_or(0);
        for (pixel, text) in &ticks {
            canvas.line(&[(left, *pixel), (to, *pixel)], GRID, 1)?;
            canvas.text(text, (left - 6, *pixel), SMALL, MUTED, Anchor::Right)?;
        }
        canvas.line(&[(left, bottom), (to, bottom)], MUTED, 1)?;
        let x = self.x.draw_below(canvas, (left, to), (top, bottom))?;
        (self.draw)(canvas, &Area { x, y, sides: (left, to), top, bottom })
    }
}
