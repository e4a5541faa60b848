//! Matrix products in fp32.
//!
//! The right side is copied into panels of a few vectors' width, and tiles of [`tile::ROWS`] rows of the left side, which
//! is read where it lies, run over them. Of the two sides that one is copied which costs less: c = a · b, or
//! cᵀ = bᵀ · aᵀ, whose tiles are turned round as they are written.
//!
//! A sum of n products rounds by about √n/2 units in the last place. So at most [`BLOCK`] products are added in a
//! register, and the blocks' sums one after the other to the result: that halves the error of a product over 576 and
//! more. Each element is computed the same way wherever it stands, on any number of threads.

mod pack;
mod tile;
mod transpose;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

pub use pack::Panels;

use crate::simd::{Level, level};
use tile::{Left, ROWS, Vector, tile};
use transpose::transpose;

/// Products that are added in one register.
const BLOCK: usize = 192;
/// Numbers of the packed side at a time: 2 MiB, which the caches hold.
const PACKED: usize = 1 << 19;
/// Tiles above each other that a thread computes in turn: their rows of the left side stay in its L2 cache.
const TILES: usize = 8;
/// From this many multiplications on all threads take part: for fewer, waking them takes longer than it saves.
const PARALLEL: usize = 64 * 64 * 64;
/// The most vectors side by side in a tile, and the most numbers.
const WIDEST: usize = 64;

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
    /// With its rows one after the other.
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

    /// With a number for each column in every row.
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

/// left · the first columns of the panels' matrix, on this thread alone; where the left side has fewer columns than the
/// matrix has rows, the others are left out.
///
/// # Panics
/// When the sizes do not fit.
pub fn product_of_panels(left: Matrix<'_>, right: &Panels, columns: usize, to: Target<'_>) {
    let Target { first, length, row, start, .. } = to;
    left.check();
    assert!(left.columns > 0 && left.columns <= right.rows && columns <= right.columns, "matmul: the panels");
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

/// Room for a column of tiles.
#[repr(C, align(64))]
struct Aside([f32; TILES * ROWS * WIDEST]);

/// Where tiles are written.
#[derive(Clone, Copy)]
struct Output<'a> {
    first: *mut f32,
    row: usize,
    start: Start<'a>,
    /// The tiles' rows are columns here.
    turned: bool,
}

// SAFETY: threads write to different rows, or columns where it is turned.
unsafe impl Sync for Output<'_> {}
// SAFETY: as above.
unsafe impl Send for Output<'_> {}

thread_local! {
    static PANELS: RefCell<Panels> = const { RefCell::new(Panels::EMPTY) };
}

fn walk(left: Matrix<'_>, right: Matrix<'_>, output: Output<'_>, parallel: bool) {
    let (columns, inner) = (right.columns, left.columns);
    // Columns whose panels are there at a time.
    let at_once = (PACKED / inner / width() * width()).max(width());
    let mut panels = PANELS.replace(Panels::EMPTY);
    for first in (0..columns).step_by(at_once) {
        let part = first..columns.min(first + at_once);
        panels.fill(&right, part.clone(), parallel);
        Work { left, panels: &panels, part, output }.run(parallel);
    }
    PANELS.set(panels);
}

/// Numbers of a vector.
fn lanes() -> usize {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => 16,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => 8,
        Level::Baseline => 4,
    }
}

/// Numbers of a whole panel's row.
fn width() -> usize {
    if lanes() == 16 { 4 * lanes() } else { 2 * lanes() }
}

/// Panels, the left side, and which columns of the result they give.
struct Work<'a> {
    left: Matrix<'a>,
    panels: &'a Panels,
    part: Range<usize>,
    output: Output<'a>,
}

impl Work<'_> {
    fn run(&self, parallel: bool) {
        let rows = self.left.rows;
        let tiles = rows.div_ceil(ROWS);
        let threads = if parallel { rayon::current_num_threads() } else { 1 };
        let size = ROWS * TILES.min(tiles.div_ceil(4 * threads));
        let chunk = |i: usize| self.chunk(i * size..rows.min((i + 1) * size));
        if parallel {
            (0..rows.div_ceil(size)).into_par_iter().with_max_len(1).for_each(chunk);
        } else {
            (0..rows.div_ceil(size)).for_each(chunk);
        }
    }

    /// Some rows, with the vectors that the processor has.
    fn chunk(&self, rows: Range<usize>) {
        match level() {
            // SAFETY: the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { self.chunk_avx512(rows) },
            // SAFETY: the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { self.chunk_avx2(rows) },
            // SAFETY: every processor has these.
            Level::Baseline => unsafe { self.chunk_of::<tile::Four, 2>(rows) },
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
    fn chunk_avx512(&self, rows: Range<usize>) {
        // SAFETY: the function is called where the processor has the instructions.
        unsafe { self.chunk_of::<std::arch::x86_64::__m512, 4>(rows) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn chunk_avx2(&self, rows: Range<usize>) {
        // SAFETY: as above.
        unsafe { self.chunk_of::<std::arch::x86_64::__m256, 2>(rows) }
    }

    #[inline(always)]
    unsafe fn chunk_of<V: Vector, const WIDTH: usize>(&self, rows: Range<usize>) {
        let width = WIDTH * V::LANES;
        for (i, panel) in self.panels.iter().enumerate() {
            let first = self.part.start + i * width;
            if first >= self.part.end {
                break;
            }
            let columns = first..self.part.end.min(first + width);
            // SAFETY: the caller's.
            unsafe {
                match panel.len() / self.panels.rows / V::LANES {
                    vectors if vectors >= WIDTH => self.panel::<V, WIDTH>(panel, rows.clone(), columns),
                    1 => self.panel::<V, 1>(panel, rows.clone(), columns),
                    2 => self.panel::<V, 2>(panel, rows.clone(), columns),
                    _ => self.panel::<V, 3>(panel, rows.clone(), columns),
                }
            }
        }
    }

    /// Some rows of one panel's columns.
    #[inline(always)]
    unsafe fn panel<V: Vector, const WIDTH: usize>(
        &self,
        panel: &[f32],
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        let Output { first, row, turned, .. } = self.output;
        let width = WIDTH * V::LANES;
        // Tiles are written here where the result has other strides or no room for whole vectors.
        let mut aside = MaybeUninit::<Aside>::uninit();
        let is_aside = turned || columns.len() < width;
        let (out, out_row) = if is_aside {
            (aside.as_mut_ptr().cast::<f32>(), width)
        } else {
            // SAFETY: rows and columns are within the result.
            (unsafe { first.add(rows.start * row + columns.start) }, row)
        };
        // SAFETY: as above; a place aside has room for `rows` rows of `width` numbers.
        let add = unsafe { self.output.begin(out, out_row, is_aside, rows.clone(), columns.clone()) };
        let inner = self.left.columns;
        let blocks = inner.div_ceil(BLOCK);
        let size = inner.div_ceil(blocks);
        for block in 0..blocks {
            let part = block * size..inner.min((block + 1) * size);
            for at in (0..rows.len()).step_by(ROWS) {
                let row = rows.start + at;
                // SAFETY: the matrix was checked, and the panel has `inner` rows of `width` numbers.
                unsafe {
                    let left = Left {
                        first: self
                            .left
                            .data
                            .as_ptr()
                            .add(row * self.left.row + part.start * self.left.column),
                        row: self.left.row,
                        column: self.left.column,
                        rows: ROWS.min(rows.end - row),
                    };
                    let packed = panel.as_ptr().add(part.start * width);
                    tile::<V, WIDTH>(
                        left,
                        packed,
                        part.len(),
                        out.add(at * out_row),
                        out_row,
                        add || block > 0,
                    );
                }
            }
        }
        if is_aside {
            // SAFETY: the tiles wrote `rows` rows of `width` numbers; rows and columns are within the result.
            unsafe { self.output.end(out, width, rows, columns) };
        }
    }
}

impl Output<'_> {
    /// Where the number of this row and column of the tiles belongs.
    #[inline(always)]
    unsafe fn at(&self, row: usize, column: usize) -> *mut f32 {
        let (row, column) = if self.turned { (column, row) } else { (row, column) };
        // SAFETY: the caller's: they are within the result.
        unsafe { self.first.add(row * self.row + column) }
    }

    /// Puts what the product is added to where its tiles go; false where that is nothing.
    #[inline(always)]
    unsafe fn begin(
        &self,
        out: *mut f32,
        out_row: usize,
        is_aside: bool,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> bool {
        if matches!(self.start, Start::Nothing) || (matches!(self.start, Start::There) && !is_aside) {
            return matches!(self.start, Start::There);
        }
        for (i, row) in rows.enumerate() {
            for (j, column) in columns.clone().enumerate() {
                // SAFETY: the caller's.
                unsafe {
                    *out.add(i * out_row + j) = match self.start {
                        Start::Bias(bias) => bias[if self.turned { row } else { column }],
                        _ => *self.at(row, column),
                    };
                }
            }
        }
        true
    }

    /// Writes rows of tiles that are `width` numbers apart to where they belong.
    #[inline(always)]
    unsafe fn end(&self, tiles: *const f32, width: usize, rows: Range<usize>, columns: Range<usize>) {
        // SAFETY: the caller's.
        unsafe {
            if self.turned {
                let to = self.at(rows.start, columns.start);
                transpose(tiles, width, rows.len(), columns.len(), to, self.row);
            } else {
                for (i, row) in rows.enumerate() {
                    let from = tiles.add(i * width);
                    self.at(row, columns.start).copy_from_nonoverlapping(from, columns.len());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
