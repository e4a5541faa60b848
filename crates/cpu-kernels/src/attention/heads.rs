//! [`Heads`] and [`HeadsOut`]: heads that are read and written where they lie among the columns of a matrix.

use std::marker::PhantomData;
use std::ops::Range;

use super::Shape;
use crate::product::{Matrix, Target};

/// How heads lie in memory: numbers from a token, key head and query head of it to the next.
#[derive(Clone, Copy, Debug)]
pub struct Strides {
    pub token: usize,
    pub kv_head: usize,
    pub head: usize,
}

impl Strides {
    /// Where a token of a key head, and query head of it, begins.
    pub(super) fn first(&self, [kv_head, head]: [usize; 2], token: usize) -> usize {
        kv_head * self.kv_head + head * self.head + token * self.token
    }
}

/// Heads somewhere in memory.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub data: &'a [f32],
    pub strides: Strides,
}

impl<'a> Heads<'a> {
    /// [tokens, head_dim] of one head.
    pub(super) fn matrix(&self, of: [usize; 2], tokens: Range<usize>, head_dim: usize) -> Matrix<'a> {
        let data = &self.data[self.strides.first(of, tokens.start)..];
        Matrix { data, rows: tokens.len(), columns: head_dim, row: self.strides.token, column: 1 }
    }
}

/// Heads that are written.
pub struct HeadsOut<'a> {
    first: *mut f32,
    length: usize,
    strides: Strides,
    lives: PhantomData<&'a mut f32>,
}

// SAFETY: the functions of this file write each head of a sequence on one thread, and `new` says that sequences share no
// tokens.
unsafe impl Sync for HeadsOut<'_> {}

impl<'a> HeadsOut<'a> {
    /// Heads that take some columns of this memory.
    ///
    /// # Safety
    /// Nobody else may read or write these columns while they are written; `memory` must stay valid so long. The sequences
    /// that [`attend`] and [`attend_backward`] write to them must not share tokens: each has threads of its own.
    pub unsafe fn new(memory: *mut [f32], column: usize, strides: Strides) -> Self {
        assert!(column < memory.len());
        // SAFETY: within the memory.
        let first = unsafe { memory.cast::<f32>().add(column) };
        Self { first, length: memory.len() - column, strides, lives: PhantomData }
    }

    /// Tokens of one head from this one on, to be written or added to.
    ///
    /// # Safety
    /// Nobody else may write these tokens meanwhile; what is added to must have been written.
    pub(super) unsafe fn target(&self, of: [usize; 2], token: usize, add: bool) -> Target<'a> {
        let first = self.strides.first(of, token);
        assert!(first < self.length, "attention: a head beyond its memory");
        // SAFETY: within the memory.
        unsafe { Target::at(self.first.add(first), self.length - first, self.strides.token, add) }
    }
}

/// One number for each query head and token: [kv_heads, group, tokens].
pub fn statistics(shape: &Shape, tokens: usize) -> Strides {
    Strides { token: 1, kv_head: shape.group * tokens, head: tokens }
}
