//! Rotary position embeddings, of pairs that lie half of the turned columns apart, or side by side.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::kernels::launch::{
    Grid, at_most, buffer, contiguous, expect, float, in_place, over, sizes, vector, writable,
};
use crate::ops::rope::Pairs;

/// The most heads that a thread turns by the angles it has loaded.
const MOST_HEADS: usize = 4;

/// Where a thread finds its pairs; lengths in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Places {
    /// Groups of heads that threads share, of a token.
    pub groups: usize,
    /// Pairs that are turned of a head.
    pub half: usize,
    /// Vectors of a head.
    pub head: usize,
    /// From a pair to the one after it.
    pub step: usize,
    /// From the first to the second element of a pair.
    pub apart: usize,
    /// Vectors of a token.
    pub width: usize,
}

/// A thread turns the pairs of one vector in `shared` heads that follow each other; `pieces` are the threads of all
/// tokens.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn rotate<F: Float, N: Size>(
    x: &[Vector<F, N>],
    cos: &[Vector<f32, N>],
    sin: &[Vector<f32, N>],
    positions: &[i32],
    y: &mut [Vector<F, N>],
    pieces: usize,
    places: Places,
    sign: f32,
    last: usize,
    #[comptime] shared: usize,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < pieces {
        let pair = ABSOLUTE_POS % places.half;
        let group = ABSOLUTE_POS / places.half;
        let token = group / places.groups;
        let angle = at_most(positions[token], last) * places.half + pair;
        let c = cos[angle];
        let s = sin[angle] * Vector::new(sign);
        let first =
            token * places.width + (group % places.groups) * shared * places.head + pair * places.step;
        let mut left = Array::<Vector<f32, N>>::new(shared);
        let mut right = Array::<Vector<f32, N>>::new(shared);
        #[unroll]
        for i in 0..shared {
            left[i] = Vector::cast_from(x[first + i * places.head]);
            right[i] = Vector::cast_from(x[first + i * places.head + places.apart]);
        }
        #[unroll]
        for i in 0..shared {
            let place = first + i * places.head;
            y[place] = Vector::cast_from(left[i] * c - right[i] * s);
            y[place + places.apart] = Vector::cast_from(right[i] * c + left[i] * s);
        }
    }
}

/// Turns each of the `pairs` (x₁, x₂) of every head by the angle of its token's position: y₁ = x₁ cos − x₂ sin,
/// y₂ = x₂ cos + x₁ sin; `inverse` turns back, which is the backward pass.
///
/// x [T, width], of which the first `columns` are heads, cos and sin [P, pairs of a head] f32, positions [T] i32 below
/// P → [T, width], in x's memory where nobody else holds it. A position beyond the table gets its last row.
pub fn rope(
    x: CubeTensor,
    columns: usize,
    pairs: Pairs,
    cos: &CubeTensor,
    sin: &CubeTensor,
    positions: &CubeTensor,
    inverse: bool,
) -> CubeTensor {
    let (x, positions) = (burn_cubecl::kernel::into_contiguous(x), contiguous(positions));
    let [tokens, width] = sizes(&x, "x");
    let (Pairs { head_dim, neighbours, .. }, turned) = (pairs, pairs.turned());
    // What is not turned must be in the result's memory.
    let turns_all = columns == width && turned == head_dim;
    let x = if turns_all { x } else { writable(x) };
    let (cos, sin) = (contiguous(cos), contiguous(sin));
    let [table, half] = sizes(&cos, "cos");
    assert!(table > 0, "a table has a row");
    expect(&cos, DType::F32, table * half, "cos");
    expect(&sin, DType::F32, table * half, "sin");
    expect(&positions, DType::I32, tokens, "positions");
    assert_eq!(turned, 2 * half, "the table has the angles of each pair");
    assert!(
        columns.is_multiple_of(head_dim) && columns <= width,
        "{columns} of {width} columns are no heads of {head_dim}"
    );
    // The elements of a pair must lie in vectors of their own.
    let vector = if neighbours { 1 } else { vector(DType::F32, &[half, head_dim, width]) };
    let (step, apart) = if neighbours { (2, 1) } else { (1, half / vector) };
    let heads = columns / head_dim;
    let mut shared = MOST_HEADS;
    while !heads.is_multiple_of(shared) {
        shared /= 2;
    }
    let pieces = tokens * heads * half / vector / shared;
    let grid = Grid::of(pieces);
    let (y, y_argument) = if turns_all { over(&x, 0, x.dtype) } else { in_place(&x, 0) };
    // SAFETY: the kernel checks the end of `y`, and keeps positions within the table.
    unsafe {
        rotate::launch_unchecked(
            &x.client,
            grid.count,
            grid.dim,
            vector,
            buffer(&x),
            buffer(&cos),
            buffer(&sin),
            buffer(&positions),
            y_argument,
            pieces,
            PlacesLaunch::new(heads / shared, half / vector, head_dim / vector, step, apart, width / vector),
            if inverse { -1.0 } else { 1.0 },
            table - 1,
            shared,
            float(x.dtype),
        );
    }
    y
}
