//! [`Split`]: how a parameter divides among ranks, and the [`Slice`] of it that a rank has.

use std::ops::Range;

/// How a parameter divides among ranks: each of `parts` equal parts along an axis by itself, as q, k and v that lie in one
/// matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub axis: usize,
    pub parts: usize,
}

/// Which side of a linear layer divides among ranks: its outputs, in so many parts that lie side by side, or its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Outputs { parts: usize },
    Inputs,
}

/// One rank's share of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'s> {
    /// Of the whole parameter.
    pub shape: &'s [usize],
    pub split: Split,
    /// The rank's place among so many ranks.
    pub place: usize,
    pub ranks: usize,
}

impl Slice<'_> {
    /// # Panics
    /// When the parts do not divide: recipes are checked for that.
    fn size(&self) -> usize {
        let (size, divisor) = (self.shape[self.split.axis], self.split.parts * self.ranks);
        assert!(size.is_multiple_of(divisor), "{size} cannot be divided by {divisor}");
        size / divisor
    }

    /// The shape of what the rank has.
    pub fn own_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.to_vec();
        shape[self.split.axis] = self.size() * self.split.parts;
        shape
    }

    /// Ranges of the whole parameter's elements that the rank has, in the order in which they lie in its own.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Split { axis, parts } = self.split;
        let inner: usize = self.shape[axis + 1..].iter().product();
        let outer: usize = self.shape[..axis].iter().product();
        let (run, part) = (self.size() * inner, self.size() * self.ranks * inner);
        let first = self.place * run;
        (0..outer * parts).map(move |i| i * part + first..i * part + first + run)
    }

    /// The runs within these of the rank's own elements, each with the place of its first element in that range.
    pub fn runs_within(&self, own: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let mut start = 0;
        self.runs().filter_map(move |run| {
            let (from, to) = (own.start.max(start), own.end.min(start + run.len()));
            let whole = run.start + from.saturating_sub(start)..run.start + to.saturating_sub(start);
            start += run.len();
            (from < to).then_some((from - own.start, whole))
        })
    }

    /// The rank's elements of the whole parameter's bytes, `size` bytes each.
    pub fn cut(&self, whole: &[u8], size: usize) -> Vec<u8> {
        let mut own = Vec::with_capacity(whole.len() / self.ranks);
        self.runs().for_each(|run| own.extend_from_slice(&whole[run.start * size..run.end * size]));
        own
    }

    /// Puts the rank's elements in their places of the whole parameter's bytes.
    pub fn put(&self, own: &[u8], whole: &mut [u8], size: usize) {
        let mut own = own;
        for run in self.runs() {
            let (here, rest) = own.split_at(run.len() * size);
            whole[run.start * size..run.end * size].copy_from_slice(here);
            own = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element i of the whole is the byte i.
    fn slices(shape: &[usize], split: Split, ranks: usize) -> Vec<Vec<u8>> {
        let whole: Vec<u8> = (0..shape.iter().product::<usize>() as u8).collect();
        let slice = |place| Slice { shape, split, place, ranks };
        let cut: Vec<Vec<u8>> = (0..ranks).map(|place| slice(place).cut(&whole, 1)).collect();
        let mut again = vec![0; whole.len()];
        cut.iter().enumerate().for_each(|(place, own)| slice(place).put(own, &mut again, 1));
        assert_eq!(again, whole);
        assert!(
            (0..ranks).all(|place| slice(place).own_shape().iter().product::<usize>() == cut[place].len())
        );
        cut
    }

    #[test]
    fn parts_along_an_axis_divide_and_come_together_again() {
        let along = |axis, parts| Split { axis, parts };
        assert_eq!(slices(&[4, 2], along(0, 1), 2), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(slices(&[2, 4], along(1, 1), 2), [[0, 1, 4, 5], [2, 3, 6, 7]]);
        // q, k and v of two columns each: a rank has one of each.
        assert_eq!(slices(&[2, 6], along(1, 3), 2), [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]);
        assert_eq!(slices(&[6], along(0, 3), 2), [[0, 2, 4], [1, 3, 5]]);
    }

    #[test]
    fn a_range_of_a_rank_s_elements_is_found_in_the_whole() {
        let slice = Slice { shape: &[2, 6], split: Split { axis: 1, parts: 3 }, place: 1, ranks: 2 };
        let all: Vec<usize> = slice.runs().flatten().collect();
        for (from, to) in [(0, 6), (1, 2), (2, 5), (3, 3), (5, 6)] {
            let mut found = vec![0; to - from];
            for (place, run) in slice.runs_within(from..to) {
                found[place..place + run.len()].copy_from_slice(&run.collect::<Vec<_>>());
            }
            assert_eq!(found, all[from..to]);
        }
    }
}
