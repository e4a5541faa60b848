//! Between rows of tokens and one matrix for each key-value head: the layout that batched
//! products of attention need.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::attention::Heads;

use super::launch::{Grid, buffer, contiguous, empty, expect, float, sizes, vector, wider, writable};

impl Heads {
    fn tokens(&self) -> usize {
        self.batch * self.sequence
    }

    /// [B · K, S · G, d]
    fn matrices(&self) -> [usize; 3] {
        [self.batch * self.kv_heads, self.sequence * self.group, self.head_dim]
    }

    fn elements(&self) -> usize {
        self.tokens() * self.columns()
    }
}

/// Where the vector at `place` of the matrices [B · K, S · G, d] lies in the rows of tokens.
#[cube]
#[allow(clippy::too_many_arguments)]
fn in_tokens(
    place: usize,
    sequence: usize,
    kv_heads: usize,
    group: usize,
    vectors: usize,
    columns: usize,
    offset: usize,
) -> usize {
    let within = place % vectors;
    let row = place / vectors;
    let member = row % group;
    let rest = row / group;
    let position = rest % sequence;
    let matrix = rest / sequence;
    let token = (matrix / kv_heads) * sequence + position;
    let head = (matrix % kv_heads) * group + member;
    token * columns + offset + head * vectors + within
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn split<F: Float, N: Size>(
    x: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    sequence: usize,
    kv_heads: usize,
    group: usize,
    vectors: usize,
    columns: usize,
    offset: usize,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = x[in_tokens(ABSOLUTE_POS, sequence, kv_heads, group, vectors, columns, offset)];
    }
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn merge<A: Float, B: Float, N: Size>(
    x: &[Vector<A, N>],
    out: &mut [Vector<B, N>],
    sequence: usize,
    kv_heads: usize,
    group: usize,
    vectors: usize,
    columns: usize,
    offset: usize,
    #[define(A, B)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < x.len() {
        let place = in_tokens(ABSOLUTE_POS, sequence, kv_heads, group, vectors, columns, offset);
        out[place] = Vector::cast_from(x[ABSOLUTE_POS]);
    }
}

/// x [B · S, columns] → [B · K, S · G, d], read from column `column_offset` on.
pub fn split_heads(x: &CubeTensor, column_offset: usize, heads: Heads) -> CubeTensor {
    let x = contiguous(x);
    let columns = checked_columns(&x, column_offset, heads);
    let out = empty(&x, heads.matrices(), x.dtype);
    let vector = vector(x.dtype, &[heads.head_dim, columns, column_offset]);
    let grid = Grid::of(heads.elements() / vector);
    // SAFETY: the kernel checks the end of `out`; the heads lie within the columns of `x`.
    unsafe {
        split::launch_unchecked(
            &x.client,
            grid.count,
            grid.dim,
            vector,
            buffer(&x),
            buffer(&out),
            heads.sequence,
            heads.kv_heads,
            heads.group,
            heads.head_dim / vector,
            columns / vector,
            column_offset / vector,
            float(x.dtype),
        );
    }
    out
}

/// x [B · K, S · G, d] → [B · S, K · G · d] of type `out`, the inverse of [`split_heads`].
pub fn merge_heads(x: &CubeTensor, heads: Heads, out: DType) -> CubeTensor {
    let target = empty(x, [heads.tokens(), heads.columns()], out);
    merge_heads_into(x, heads, target, 0)
}

/// Writes x [B · K, S · G, d] into the columns of `target` [B · S, columns] from `column_offset`
/// on, in target's memory where nobody else holds it.
pub fn merge_heads_into(
    x: &CubeTensor,
    heads: Heads,
    target: CubeTensor,
    column_offset: usize,
) -> CubeTensor {
    let (x, target) = (contiguous(x), writable(target));
    expect(&x, x.dtype, heads.elements(), "x");
    let columns = checked_columns(&target, column_offset, heads);
    let vector = vector(wider(x.dtype, target.dtype), &[heads.head_dim, columns, column_offset]);
    let grid = Grid::of(heads.elements() / vector);
    // SAFETY: the kernel checks the end of `x`; the heads lie within the columns of `target`.
    unsafe {
        merge::launch_unchecked(
            &x.client,
            grid.count,
            grid.dim,
            vector,
            buffer(&x),
            buffer(&target),
            heads.sequence,
            heads.kv_heads,
            heads.group,
            heads.head_dim / vector,
            columns / vector,
            column_offset / vector,
            [float(x.dtype), float(target.dtype)],
        );
    }
    target
}

/// The columns of a tensor of tokens that holds the heads from `column_offset` on.
fn checked_columns(tokens: &CubeTensor, column_offset: usize, heads: Heads) -> usize {
    let [rows, columns] = sizes(tokens, "the tensor of tokens");
    assert_eq!(rows, heads.tokens(), "tokens of {heads:?}");
    assert!(
        column_offset + heads.columns() <= columns,
        "{heads:?} from {column_offset} in {columns} columns"
    );
    columns
}
