//! [`walk`]: the order in which the tiles of a product are computed, and where they are written.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use super::pack::{Panels, Part};
use super::tile::{self, Left, ROWS, Vector, tile};
use super::transpose::transpose;
use super::{Matrix, Start};
use crate::simd::{Level, level};

/// Products that are added in one register.
pub const BLOCK: usize = 192;
/// Numbers of the packed side at a time: 2 MiB, which the caches hold.
const PACKED: usize = 1 << 19;
/// Tiles above each other that a thread computes in turn: their rows of the left side stay in its L2 cache.
const TILES: usize = 8;
/// The most vectors side by side in a tile, and the most numbers.
const WIDEST: usize = 64;

/// Room for a column of tiles.
#[repr(C, align(64))]
struct Aside([f32; TILES * ROWS * WIDEST]);

/// Where tiles are written.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    pub first: *mut f32,
    pub row: usize,
    pub start: Start<'a>,
    /// The tiles' rows are columns here.
    pub turned: bool,
}

// SAFETY: threads write to different rows, or columns where it is turned.
unsafe impl Sync for Output<'_> {}
// SAFETY: as above.
unsafe impl Send for Output<'_> {}

thread_local! {
    static PANELS: RefCell<Panels> = const { RefCell::new(Panels::EMPTY) };
}

/// left · right, panel by panel.
pub fn walk(left: Matrix<'_>, right: Matrix<'_>, output: Output<'_>, parallel: bool) {
    let (columns, inner) = (right.columns, left.columns);
    // Columns whose panels are there at a time.
    let at_once = (PACKED / inner / width() * width()).max(width());
    let mut panels = PANELS.replace(Panels::EMPTY);
    for first in (0..columns).step_by(at_once) {
        let part = first..columns.min(first + at_once);
        panels.fill(&right, part.clone(), parallel);
        Work { left, panels: panels.part(0..inner, 0..part.len()), part, output }.run(parallel);
    }
    PANELS.set(panels);
}

/// Numbers of a vector.
pub fn lanes() -> usize {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => 16,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => 8,
        Level::Baseline => 4,
    }
}

/// Numbers of a whole panel's row.
pub fn width() -> usize {
    if lanes() == 16 { 4 * lanes() } else { 2 * lanes() }
}

/// Panels, the left side, and which columns of the result they give.
pub struct Work<'a> {
    pub left: Matrix<'a>,
    pub panels: Part<'a>,
    pub part: Range<usize>,
    pub output: Output<'a>,
}

impl Work<'_> {
    /// All rows, on this thread or on all.
    pub fn run(&self, parallel: bool) {
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

    /// # Safety
    /// The processor has the instructions of `V`.
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
                match panel.width / V::LANES {
                    vectors if vectors >= WIDTH => self.panel::<V, WIDTH>(panel.data, rows.clone(), columns),
                    1 => self.panel::<V, 1>(panel.data, rows.clone(), columns),
                    2 => self.panel::<V, 2>(panel.data, rows.clone(), columns),
                    _ => self.panel::<V, 3>(panel.data, rows.clone(), columns),
                }
            }
        }
    }

    /// Some rows of one panel's columns.
    ///
    /// # Safety
    /// As for `chunk_of`; rows and columns are within the result.
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
    ///
    /// # Safety
    /// They are within the result.
    #[inline(always)]
    unsafe fn at(&self, row: usize, column: usize) -> *mut f32 {
        let (row, column) = if self.turned { (column, row) } else { (row, column) };
        // SAFETY: the caller's: they are within the result.
        unsafe { self.first.add(row * self.row + column) }
    }

    /// Puts what the product is added to where its tiles go; false where that is nothing.
    ///
    /// # Safety
    /// Rows and columns are within the result; `out` has room for as many rows of `out_row` numbers.
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
        // A tile aside is read in whole vectors: it has zeros where the result has no columns.
        let beyond = if is_aside { columns.len()..out_row } else { 0..0 };
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
            for j in beyond.clone() {
                // SAFETY: a place aside has `out_row` numbers in each row.
                unsafe { *out.add(i * out_row + j) = 0.0 };
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
