//! Names around the markers that they are of, where there is room.

use super::prelude::*;

/// From one name to the next.
const LINE: i32 = 14;
/// The most pixels of a name.
const MOST: i32 = 320;
/// Between a marker and its name.
const GAP: i32 = 9;
/// How many lines above or below its marker a name may stand.
const LINES: i32 = 8;

/// Pixels that names need beside the right end of a panel's data.
pub fn room<'n>(names: impl Iterator<Item = &'n String>) -> i32 {
    names.map(|name| text_width(name, SMALL)).max().unwrap_or(0).min(MOST) + 24
}

/// What stands in a panel already: left, top, right and bottom.
#[derive(Default)]
pub struct Taken(Vec<[i32; 4]>);

impl Taken {
    pub fn marker(&mut self, (x, y): (i32, i32)) {
        self.0.push([x - 7, y - 7, x + 7, y + 7]);
    }

    /// A line through these points, in short pieces: a box around a long one would take what it only passes.
    pub fn line(&mut self, points: &[(i32, i32)]) {
        for (a, b) in points.iter().tuple_windows() {
            let pieces = (a.0.abs_diff(b.0).max(a.1.abs_diff(b.1)) / 8 + 1) as i32;
            let at = |i: i32| (a.0 + (b.0 - a.0) * i / pieces, a.1 + (b.1 - a.1) * i / pieces);
            let around = |(a, b): ((i32, i32), (i32, i32))| {
                [a.0.min(b.0) - 1, a.1.min(b.1) - 1, a.0.max(b.0) + 1, a.1.max(b.1) + 1]
            };
            self.0.extend((0..=pieces).map(at).tuple_windows().map(around));
        }
    }

    /// Writes a name beside a marker, the nearest place that is free; none where none is.
    pub fn name(&mut self, canvas: &Canvas, area: &Area, name: &str, of: (usize, (i32, i32))) -> Result {
        let (method, at) = of;
        let name = fit(name, SMALL, MOST);
        let width = text_width(&name, SMALL);
        let lines = (0..=LINES).flat_map(|line| [-line, line]);
        let mut places = lines.flat_map(|line| {
            let y = at.1 + line * LINE;
            [(at.0 + GAP, y, Anchor::Left), (at.0 - GAP - width, y, Anchor::Right)]
        });
        let area_of = |left: i32, y: i32| [left - 2, y - LINE / 2, left + width + 2, y + LINE / 2];
        let is_free = |(left, y, _): &(i32, i32, Anchor)| {
            let [left, top, right, bottom] = area_of(*left, *y);
            let is_within =
                left >= area.sides.0 && right <= area.sides.1 && top >= area.top - 8 && bottom <= area.bottom;
            let meets = |[l, t, r, b]: &[i32; 4]| left < *r && *l < right && top < *b && *t < bottom;
            is_within && !self.0.iter().any(meets)
        };
        let Some((left, y, anchor)) = places.find(is_free) else { return Ok(()) };
        self.0.push(area_of(left, y));
        let near = if matches!(anchor, Anchor::Left) { left - 2 } else { left + width + 2 };
        if y != at.1 {
            canvas.line(&[at, (near, y)], method_color(method), 1)?;
        }
        canvas.text(&name, (left, y), SMALL, INK, Anchor::Left)
    }
}
