//! [`Share`]: the part of every batch that one of several replicas computes.

use std::ops::Range;

/// One of several equal parts of every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub place: usize,
    pub of: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { place: 0, of: 1 };

    /// The part of so many things that follow one another.
    pub fn range(self, count: usize) -> Range<usize> {
        self.place * count / self.of..(self.place + 1) * count / self.of
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}
