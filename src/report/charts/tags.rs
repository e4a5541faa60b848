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

/// Left, top, right and bottom.
type Space = [i32; 4];

/// What stands in a panel already.
#[derive(Default)]
pub struct Taken {
    all: Vec<Space>,
    /// The names among it, which no line from another name to its marker crosses.
    names: Vec<Space>,
}

impl Taken {
    pub fn marker(&mut self, (x, y): (i32, i32)) {
        self.all.push([x - 7, y - 7, x + 7, y + 7]);
    }

    /// A line through these points.
    pub fn line(&mut self, points: &[(i32, i32)]) {
        self.all.extend(points.iter().tuple_windows().flat_map(|(a, b)| pieces(*a, *b)));
    }

    /// Writes a name beside a marker, the nearest place that is free; none where none is.
    pub fn name(&mut self, canvas: &Canvas, area: &Area, name: &str, of: (usize, (i32, i32))) -> Result {
        let (method, at) = of;
        let name = fit(name, SMALL, MOST);
        let width = text_width(&name, SMALL);
        let lines = (0..=LINES).flat_map(|line| [-line, line]);
        // Its left end and its line, and the end that is near the marker.
        let mut places = lines.flat_map(|line| {
            let (y, left) = (at.1 + line * LINE, at.0 - GAP - width);
            [(at.0 + GAP, y, at.0 + GAP - 2), (left, y, left + width + 2)]
        });
        let space = |left: i32, y: i32| [left - 2, y - LINE / 2, left + width + 2, y + LINE / 2];
        let is_free = |(left, y, near): &(i32, i32, i32)| {
            let own @ [start, top, end, bottom] = space(*left, *y);
            let is_within =
                start >= area.sides.0 && end <= area.sides.1 && top >= area.top - 8 && bottom <= area.bottom;
            let crosses =
                || pieces(at, (*near, *y)).any(|piece| self.names.iter().any(|name| meet(name, &piece)));
            is_within && !self.all.iter().any(|taken| meet(taken, &own)) && (*y == at.1 || !crosses())
        };
        let Some((left, y, near)) = places.find(is_free) else { return Ok(()) };
        self.all.push(space(left, y));
        self.names.push(space(left, y));
        if y != at.1 {
            self.all.extend(pieces(at, (near, y)));
            canvas.line(&[at, (near, y)], method_color(method), 1)?;
        }
        canvas.text(&name, (left, y), SMALL, INK, Anchor::Left)
    }
}

fn meet([l, t, r, b]: &Space, [left, top, right, bottom]: &Space) -> bool {
    l < right && left < r && t < bottom && top < b
}

/// The spaces of short pieces of a line: that of the whole would have what the line only passes.
fn pieces(a: (i32, i32), b: (i32, i32)) -> impl Iterator<Item = Space> {
    let count = (a.0.abs_diff(b.0).max(a.1.abs_diff(b.1)) / 8 + 1) as i32;
    let at = move |i: i32| (a.0 + (b.0 - a.0) * i / count, a.1 + (b.1 - a.1) * i / count);
    let around = |(a, b): ((i32, i32), (i32, i32))| {
        [a.0.min(b.0) - 1, a.1.min(b.1) - 1, a.0.max(b.0) + 1, a.1.max(b.1) + 1]
    };
    (0..=count).map(at).tuple_windows().map(around)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_to_a_marker_crosses_no_name() {
        let name = [10, 40, 90, 54];
        let crosses = |from, to| pieces(from, to).any(|piece| meet(&name, &piece));
        assert!(crosses((50, 80), (55, 10)), "through it");
        assert!(!crosses((120, 80), (125, 10)), "beside it");
        assert!(!crosses((5, 80), (200, 40)), "a box around the whole line would meet it");
    }
}
