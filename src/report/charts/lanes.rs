//! Lanes on one axis of time, in sections with headings above one another.

use super::prelude::*;
use crate::common::text::time_unit;

const TOP: i32 = 48;
/// Of each lane, and of what stands above a section.
pub const LANE: i32 = 24;

pub struct Section<'s> {
    pub heading: String,
    pub lanes: Vec<Lane<'s>>,
}

/// Draws a lane, from the pixel of a time in seconds and its upper edge.
type Draw<'s> = Box<dyn Fn(&Canvas, &dyn Fn(f64) -> i32, i32) -> Result + 's>;

pub struct Lane<'s> {
    pub name: String,
    pub draw: Draw<'s>,
}

/// The picture of sections, of which the longest takes so many seconds.
pub fn lanes(title: &str, legend: &Legend, longest: f64, sections: &[Section]) -> Result<String> {
    let height: i32 = sections.iter().map(|section| LANE * (1 + section.lanes.len() as i32)).sum();
    let names = sections.iter().flat_map(|section| &section.lanes).map(|lane| text_width(&lane.name, TEXT));
    let (left, right) = (MARGIN + 10 + names.max().unwrap_or(0), WIDTH - MARGIN - 10);
    let top = TOP + legend.height();
    let (unit, size) = time_unit(longest);
    let time = Axis { ticks: Ticks::About(8), ..Axis::new(format!("time in {unit}"), (0.0, longest / size)) };
    let at = |seconds: f64| left + (seconds / longest * f64::from(right - left)).round() as i32;
    svg(title, top + height + BELOW, |canvas| {
        legend.draw(canvas, TOP - 4)?;
        time.draw_below(canvas, (left, right), (top, top + height))?;
        let mut y = top;
        for section in sections {
            let heading = fit(&section.heading, SMALL, right - left);
            canvas.text(&heading, (left + 2, y + LANE / 2), SMALL, MUTED, Anchor::Left)?;
            for lane in &section.lanes {
                y += LANE;
                canvas.text(&lane.name, (left - 10, y + LANE / 2), TEXT, INK, Anchor::Right)?;
                canvas.rect((left, y + 2), (right, y + LANE - 2), tint(GRID, 0.4))?;
                (lane.draw)(canvas, &at, y)?;
            }
            y += LANE;
        }
        canvas.line(&[(left, top), (left, top + height)], MUTED, 1)
    })
}
