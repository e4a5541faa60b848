//! Names beside what they are of: at the right ends of curves, and around markers where there is room.

use super::canvas::{Anchor, Canvas, INK, Result, SMALL, fit, text_width};
use super::look::method_color;
use super::plot::Area;

/// From one name to the next.
const LINE: i32 = 14;
/// The most pixels of a name at the end of a curve, and beside a marker.
const MOST: i32 = 300;
const BESIDE: i32 = 330;
/// Between a marker and its name.
const GAP: i32 = 9;
/// How many lines above or below its marker a name may stand.
const LINES: i32 = 8;

/// The right end of a curve with its name.
pub struct End {
    pub name: String,
    /// Its colour.
    pub method: usize,
    pub at: (i32, i32),
}

/// Pixels that names need beside the right end of a panel's data.
pub fn room<'n>(names: impl Iterator<Item = &'n String>) -> i32 {
    names.map(|name| text_width(name, SMALL)).max().unwrap_or(0).min(MOST) + 24
}

/// Writes each name beside its end, one in each line, tied to it by a stroke.
pub fn ends(canvas: &Canvas, area: &Area, mut ends: Vec<End>) -> Result {
    ends.sort_by_key(|end| end.at.1);
    let Some(edge) = ends.iter().map(|end| end.at.0).max() else { return Ok(()) };
    let lines = spread(&ends.iter().map(|end| end.at.1).collect::<Vec<_>>(), (area.top, area.bottom));
    for (End { name, method, at }, y) in ends.into_iter().zip(lines) {
        canvas.line(&[(at.0 + 6, at.1), (edge + 16, y)], method_color(method), 1)?;
        canvas.text(&fit(&name, SMALL, MOST), (edge + 18, y), SMALL, INK, Anchor::Left)?;
    }
    Ok(())
}

/// Lines for rising places, each its own: a name moves down, or at the lower edge all of them up.
fn spread(places: &[i32], (top, bottom): (i32, i32)) -> Vec<i32> {
    let mut next = top;
    let line = |(i, place): (usize, &i32)| {
        let below = (places.len() - 1 - i) as i32;
        let y = (*place).clamp(next, (bottom - LINE / 2 - below * LINE).max(next));
        next = y + LINE;
        y
    };
    places.iter().enumerate().map(line).collect()
}

/// What stands in a panel already: left, top, right and bottom.
#[derive(Default)]
pub struct Taken(Vec<[i32; 4]>);

impl Taken {
    pub fn marker(&mut self, (x, y): (i32, i32)) {
        self.0.push([x - 7, y - 7, x + 7, y + 7]);
    }

    /// A line through these points.
    pub fn line(&mut self, points: &[(i32, i32)]) {
        let between = |(a, b): (&(i32, i32), &(i32, i32))| {
            [a.0.min(b.0) - 1, a.1.min(b.1) - 1, a.0.max(b.0) + 1, a.1.max(b.1) + 1]
        };
        self.0.extend(points.iter().zip(points.iter().skip(1)).map(between));
    }

    /// Writes a name beside a marker, the nearest place that is free; none where none is.
    pub fn name(
        &mut self,
        canvas: &Canvas,
        area: &Area,
        name: &str,
        (method, at): (usize, (i32, i32)),
    ) -> Result {
        let name = fit(name, SMALL, BESIDE);
        let width = text_width(&name, SMALL);
        let lines = (0..=LINES).flat_map(|line| [-line, line]);
        let mut places = lines.flat_map(|line| {
            let y = at.1 + line * LINE;
            [(at.0 + GAP, y, Anchor::Left), (at.0 - GAP - width, y, Anchor::Right)]
        });
        let is_free = |(left, y, _): &(i32, i32, Anchor)| {
            let [left, top, right, bottom] = [left - 2, y - LINE / 2, left + width + 2, y + LINE / 2];
            let is_within =
                left >= area.sides.0 && right <= area.sides.1 && top >= area.top - 8 && bottom <= area.bottom;
            let meets = |[l, t, r, b]: &[i32; 4]| left < *r && *l < right && top < *b && *t < bottom;
            is_within && !self.0.iter().any(meets)
        };
        let Some((left, y, anchor)) = places.find(is_free) else { return Ok(()) };
        self.0.push([left - 2, y - LINE / 2, left + width + 2, y + LINE / 2]);
        let near = if matches!(anchor, Anchor::Left) { left - 2 } else { left + width + 2 };
        if y != at.1 {
            canvas.line(&[at, (near, y)], method_color(method), 1)?;
        }
        canvas.text(&name, (left, y), SMALL, INK, Anchor::Left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_line() {
        assert_eq!(spread(&[10, 50, 52, 199], (0, 200)), [10, 50, 50 + LINE, 200 - LINE / 2]);
        let crowded = spread(&[195; 4], (0, 200));
        assert!(crowded.windows(2).all(|pair| pair[1] - pair[0] == LINE), "{crowded:?}");
        assert!(crowded.iter().all(|y| (0..200).contains(y)), "{crowded:?}");
    }
}
