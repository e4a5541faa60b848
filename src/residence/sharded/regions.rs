//! [`Regions`]: how a bucket's flat parameters divide evenly among ranks.

use std::ops::Range;

use crate::residence::layout::Layout;

/// A rank's part is a multiple of so many elements, so that it has whole blocks of 8-bit moments.
const MULTIPLE: usize = 256;

/// Parameters that lie one after the other, padded with zeros so that they divide evenly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The numbers of the parameters in the layout.
    pub parts: Range<usize>,
    /// The first element of the layout's buffer.
    pub first: usize,
    /// Elements of each rank's part.
    pub own: usize,
}

/// The trained parameters of a layout, and the frozen ones, which lie behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    pub trained: Region,
    pub frozen: Region,
}

impl Region {
    fn of(layout: &Layout, parts: Range<usize>, ranks: usize) -> Self {
        let of_region = &layout.parts[parts.clone()];
        let first = of_region.first().map_or(0, |part| part.first);
        let end = of_region.last().map_or(0, |part| part.first + part.elements());
        Self { parts, first, own: (end - first).div_ceil(ranks).next_multiple_of(MULTIPLE) }
    }

    /// The part of the rank at `place`, in elements of the layout's buffer; padding may lie behind its end.
    pub fn of_rank(&self, place: usize) -> Range<usize> {
        let start = self.first + place * self.own;
        start..start + self.own
    }
}

impl Regions {
    pub fn of(layout: &Layout, ranks: usize) -> Self {
        let [trained, frozen] = [0..layout.trainable, layout.trainable..layout.parts.len()]
            .map(|parts| Region::of(layout, parts, ranks));
        Self { trained, frozen }
    }

    pub fn all(&self) -> [&Region; 2] {
        [&self.trained, &self.frozen]
    }
}
