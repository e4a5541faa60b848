//! Matrix products in fp32.
//!
//! The right side is copied into panels of a few vectors' width, and tiles of [`tile::ROWS`] rows of the left side, which
//! is read where it lies, run over them. Of the two sides that one is copied which costs less: c = a · b, or
//! cᵀ = bᵀ · aᵀ, whose tiles are turned round as they are written.
//!
//! A sum of n products rounds by about √n/2 units in the last place. So at most [`walk::BLOCK`] products are added in a
//! register, and the blocks' sums one after the other to the result: that halves the error of a product over 576 and
//! more. Each element is computed the same way wherever it stands, on any number of threads.

mod pack;
mod tile;
mod transpose;
mod walk;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

pub use pack::{Panels, Part};

use walk::{Output, Work, walk};

/// From this many multiplications on all threads take part: for fewer, waking them takes longer than it saves.
const PARALLEL: usize = 64 * 64 * 64;

/// A matrix somewhere in memory.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    /// Numbers from a row to the next.
    pub row: usize,
    /// Numbers from a column to the next.
    pub column: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix whose rows lie one after the other.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, row: columns, column: 1 }
    }

    /// The transpose, in the same place.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row: self.column, column: self.row, ..self }
    }

    /// Some of its rows.
    #[must_use]
    pub fn rows(self, rows: Range<usize>) -> Self {
        Self { data: &self.data[rows.start * self.row..], rows: rows.len(), ..self }
    }

    fn check(&self) {
        let last = self.rows.saturating_sub(1) * self.row + self.columns.saturating_sub(1) * self.column;
        assert!(self.rows * self.columns == 0 || last < self.data.len(), "a matrix larger than its memory");
    }
}

/// Where a product goes: rows of numbers side by side.
pub struct Target<'a> {
    first: *mut f32,
    length: usize,
    /// Numbers from a row to the next.
    row: usize,
    start: Start<'a>,
    lives: PhantomData<&'a mut f32>,
}

/// What a product is added to.
#[derive(Clone, Copy)]
enum Start<'a> {
    Nothing,
    /// What is there.
    There,
    /// One number for each column.
    Bias(&'a [f32]),
}

impl<'a> Target<'a> {
    /// New memory, all of whose rows are written.
    pub fn new(memory: &'a mut [MaybeUninit<f32>], row: usize) -> Self {
        let (first, length) = (memory.as_mut_ptr().cast(), memory.len());
        Self { first, length, row, start: Start::Nothing, lives: PhantomData }
    }

    /// Memory whose numbers are written over.
    pub fn over(memory: &'a mut [f32], row: usize) -> Self {
        let (first, length) = (memory.as_mut_ptr(), memory.len());
        Self { first, length, row, start: Start::Nothing, lives: PhantomData }
    }

    /// Memory whose numbers the product is added to.
    pub fn add_to(memory: &'a mut [f32], row: usize) -> Self {
        Self { start: Start::There, ..Self::over(memory, row) }
    }

    /// Rows that begin at `first`, whose numbers are written over or added to.
    ///
    /// # Safety
    /// From `first` on `length` numbers must be memory whose rows of the product nobody else uses while it is written;
    /// what is added to must have been written.
    pub unsafe fn at(first: *mut f32, length: usize, row: usize, add: bool) -> Self {
        let start = if add { Start::There } else { Start::Nothing };
        Self { first, length, row, start, lives: PhantomData }
    }

    /// Writes one number.
    pub(crate) fn set(self, value: f32) {
        assert!(self.length > 0);
        // SAFETY: within the memory.
        unsafe { *self.first = value };
    }

    /// Adds a number for each column to every row.
    ///
    /// # Panics
    /// When the product is added to what is there.
    #[must_use]
    pub fn bias(self, bias: &'a [f32]) -> Self {
        assert!(matches!(self.start, Start::Nothing), "a product is added to a bias or to what is there");
        Self { start: Start::Bias(bias), ..self }
    }
}

/// left · right, on all threads.
///
/// # Panics
/// When the sizes do not fit.
pub fn product(left: Matrix<'_>, right: Matrix<'_>, to: Target<'_>) {
    let (m, n, k) = (left.rows, right.columns, left.columns);
    run(left, right, to, m * n * k >= PARALLEL && rayon::current_num_threads() > 1);
}

/// The same on this thread alone.
///
/// # Panics
/// When the sizes do not fit.
pub fn product_here(left: Matrix<'_>, right: Matrix<'_>, to: Target<'_>) {
    run(left, right, to, false);
}

/// left · a part of the panels' matrix, on this thread alone.
///
/// # Panics
/// When the sizes do not fit.
pub fn product_of_panels(left: Matrix<'_>, right: Part<'_>, to: Target<'_>) {
    let Target { first, length, row, start, .. } = to;
    let columns = right.columns.len();
    left.check();
    assert!(left.columns > 0 && left.columns == right.rows.len(), "matmul: the panels");
    assert!(
        left.rows > 0 && (left.rows - 1) * row + columns <= length,
        "matmul: the result is larger than its memory"
    );
    let output = Output { first, row, start, turned: false };
    Work { left, panels: right, part: 0..columns, output }.run(false);
}

fn run(left: Matrix<'_>, right: Matrix<'_>, to: Target<'_>, parallel: bool) {
    let (m, n, k) = (left.rows, right.columns, left.columns);
    assert_eq!(k, right.rows, "matmul: [{m}, {k}] times [{}, {n}]", right.rows);
    assert!(k > 0, "matmul: a sum of nothing");
    left.check();
    right.check();
    assert!(m * n == 0 || (m - 1) * to.row + n <= to.length, "matmul: the result is larger than its memory");
    // Threads write to rows of their own.
    assert!(m <= 1 || n <= to.row, "matmul: the rows of the result lie over each other");
    if let Start::Bias(bias) = to.start {
        assert_eq!(bias.len(), n, "matmul: the length of the bias");
    }
    let output = Output { first: to.first, row: to.row, start: to.start, turned: false };
    if m * n == 0 {
        return;
    }
    if copying(&right, k * n) <= copying(&left.transposed(), k * m) + m * n / 2 {
        walk(left, right, output, parallel);
    } else {
        walk(right.transposed(), left.transposed(), Output { turned: true, ..output }, parallel);
    }
}

/// About how many clock ticks it takes to copy a right side of so many numbers into panels, times 4.
fn copying(right: &Matrix<'_>, numbers: usize) -> usize {
    if right.column == 1 { numbers } else { 2 * numbers }
}

#[cfg(test)]
mod tests;
