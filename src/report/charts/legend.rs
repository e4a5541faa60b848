//! [`Legend`]: signs and their names in rows above a chart's data.

use std::fmt::Display;

use super::prelude::*;
use crate::common::text::few;

const ROW: i32 = 20;
const SIGN: i32 = 20;
const GAP: i32 = 22;

/// The most names of one sign.
pub const FEW: usize = 4;

/// What stands before a name.
#[derive(Clone, Copy)]
pub enum Sign {
    /// A filled square.
    Fill(RGBColor),
    /// A method's marker on a line of its colour.
    Marker(usize),
    /// The upright stroke of an estimate.
    Stroke,
    /// A missing value.
    Cross,
    /// A method's line.
    Curve(usize),
}

#[derive(Default)]
pub struct Legend {
    items: Vec<(Sign, String)>,
}

impl Legend {
    pub fn add(&mut self, sign: Sign, name: &str) {
        self.items.push((sign, fit(name, TEXT, WIDTH - 2 * GAP - SIGN)));
    }

    /// One sign for several names, of many the first ones.
    pub fn add_few(&mut self, sign: Sign, names: impl IntoIterator<Item: Display>) {
        self.add(sign, &few(names, FEW));
    }

    /// Left edge and row of each item.
    fn places(&self) -> Vec<(i32, i32)> {
        let (mut x, mut row) = (GAP, 0);
        let place = |(_, name): &(Sign, String)| {
            let width = SIGN + text_width(name, TEXT);
            if x > GAP && x + width > WIDTH - GAP {
                (x, row) = (GAP, row + 1);
            }
            x += width + GAP;
            (x - width - GAP, row)
        };
        self.items.iter().map(place).collect()
    }

    pub fn height(&self) -> i32 {
        self.places().last().map_or(0, |(_, row)| (row + 1) * ROW)
    }

    pub fn draw(&self, canvas: &Canvas, top: i32) -> Result {
        for ((sign, name), (x, row)) in self.items.iter().zip(self.places()) {
            let y = top + row * ROW + ROW / 2;
            match *sign {
                Sign::Fill(color) => canvas.rect((x, y - 6), (x + 12, y + 6), color)?,
                Sign::Marker(method) => {
                    canvas.curve(method, &[(x - 2, y), (x + 16, y)], 2)?;
                    canvas.marker(method, (x + 7, y), 4)?;
                }
                Sign::Stroke => canvas.rect((x + 5, y - 7), (x + 7, y + 7), INK)?,
                Sign::Cross => canvas.cross((x + 6, y), 4, ALARM)?,
                Sign::Curve(method) => canvas.curve(method, &[(x - 2, y), (x + 14, y)], 2)?,
            }
            canvas.text(name, (x + SIGN, y), TEXT, INK, Anchor::Left)?;
        }
        Ok(())
    }
}
