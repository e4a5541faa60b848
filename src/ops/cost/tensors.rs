//! [`Tensors`]: the sizes of trained parameters that decide what an optimizer keeps of them.

use std::iter::Sum;
use std::ops::Add;

use super::by_field::by_field;

/// Tensors of fewer elements are small.
pub const SMALL: u64 = 4096;

/// Trained matrices and vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// How many there are.
    pub count: u64,
    pub elements: u64,
    /// Elements of small tensors.
    pub small: u64,
    /// Rows and columns of matrices, and the elements of vectors.
    pub sides: u64,
}

impl Tensors {
    /// So many matrices of one shape.
    pub fn matrices(count: u64, [rows, columns]: [u64; 2]) -> Self {
        Self { sides: count * (rows + columns), ..Self::vectors(count, rows * columns) }
    }

    /// So many vectors of one length.
    pub fn vectors(count: u64, length: u64) -> Self {
        let elements = count * length;
        let small = if length < SMALL { elements } else { 0 };
        Self { count: if elements > 0 { count } else { 0 }, elements, small, sides: elements }
    }

    /// As one vector.
    #[must_use]
    pub fn flat(self) -> Self {
        Self::vectors(1, self.elements)
    }
}

by_field!(Add for Tensors { count, elements, small, sides });
by_field!(Mul<u64> for Tensors { count, elements, small, sides });

impl Sum for Tensors {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}
