//! [`Panels`]: the right side of a product, copied in the order in which tiles read it.

use std::ops::Range;

use rayon::prelude::*;

use super::Matrix;
use super::transpose::transpose;
use super::walk::{lanes, width};
use crate::room::Room;

/// Columns of a matrix: for each `width` of them, one row after the other; the last panel is as wide as its columns
/// need, in whole vectors, with 0 beyond them.
pub struct Panels {
    room: Room,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Some rows and columns of the matrix of [`Panels`].
#[derive(Clone)]
pub struct Part<'a> {
    pub(super) panels: &'a Panels,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// Numbers from which on several threads copy.
const PARALLEL: usize = 1 << 14;

impl Panels {
    pub const EMPTY: Self = Self { room: Room::EMPTY, rows: 0, columns: 0 };

    /// Takes these columns of a matrix in the place of what was there.
    pub fn fill(&mut self, matrix: &Matrix<'_>, columns: Range<usize>, parallel: bool) {
        matrix.check();
        (self.rows, self.columns) = (matrix.rows, columns.len());
        let length = self.rows * self.columns.next_multiple_of(lanes());
        let fill = |(i, to): (usize, &mut [f32])| {
            let first = columns.start + i * width();
            panel(matrix, first..columns.end.min(first + width()), to);
        };
        let panels = self.room.numbers(length);
        if parallel && length >= PARALLEL {
            panels.par_chunks_mut(width() * self.rows).enumerate().for_each(fill);
        } else {
            panels.chunks_mut(width() * self.rows).enumerate().for_each(fill);
        }
    }

    /// The column with which the panel of this one begins.
    pub fn begin(column: usize) -> usize {
        column / width() * width()
    }

    /// These rows and columns.
    ///
    /// # Panics
    /// When the matrix has fewer, or the columns do not [`begin`](Self::begin) with a panel.
    pub fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Part<'_> {
        assert!(rows.end <= self.rows && columns.end <= self.columns, "matmul: the panels");
        assert_eq!(Self::begin(columns.start), columns.start, "matmul: columns begin with a panel");
        Part { panels: self, rows, columns }
    }
}

impl<'a> Part<'a> {
    /// The panels of the columns in order, from the first row on. Each has `width` numbers a row, the last perhaps fewer.
    pub(super) fn iter(&self) -> impl Iterator<Item = PanelRows<'a>> + use<'a> {
        let (Panels { room, rows, columns }, first) = (self.panels, self.rows.start);
        let panels = room.written(rows * columns.next_multiple_of(lanes())).chunks(width() * rows);
        panels.skip(self.columns.start / width()).map(move |panel| {
            let width = panel.len() / rows;
            PanelRows { data: &panel[first * width..], width }
        })
    }
}

/// Rows of a panel.
pub(super) struct PanelRows<'a> {
    pub data: &'a [f32],
    /// Numbers of a row.
    pub width: usize,
}

/// The panel of these columns; `to` has as many numbers for each row as fit.
fn panel(matrix: &Matrix<'_>, columns: Range<usize>, to: &mut [f32]) {
    let (rows, count) = (matrix.rows, columns.len());
    let width = to.len() / rows;
    if count < width {
        to.chunks_exact_mut(width).for_each(|to| to[count..].fill(0.0));
    }
    if matrix.column == 1 {
        for (p, to) in to.chunks_exact_mut(width).enumerate() {
            let from = p * matrix.row + columns.start;
            to[..count].copy_from_slice(&matrix.data[from..from + count]);
        }
    } else if matrix.row == 1 {
        let from = matrix.data[columns.start * matrix.column..].as_ptr();
        // SAFETY: the matrix was checked; its columns lie side by side, and the panel has room for `rows` rows.
        unsafe { transpose(from, matrix.column, count, rows, to.as_mut_ptr(), width) };
    } else {
        for (p, to) in to.chunks_exact_mut(width).enumerate() {
            for (j, to) in to[..count].iter_mut().enumerate() {
                *to = matrix.data[p * matrix.row + (columns.start + j) * matrix.column];
            }
        }
    }
}
