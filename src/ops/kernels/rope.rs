//! Rotary position embeddings in the half-split convention of Hugging Face.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{Grid, at_most, buffer, contiguous, expect, float, over, sizes, vector, writable};

/// The most heads that a thread turns by the angles it has loaded.
const MOST_HEADS: usize = 4;

/// A thread turns the pairs of one vector, elements i and i + d/2, in `shared` heads that follow
/// each other. `half` is d/2 in vectors, `groups` the groups of such heads of a token, `width` the vectors of a token,
/// `pieces` the threads of all tokens.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn rotate<F: Float, N: Size>(
    x: &[Vector<F, N>],
    cos: &[Vector<f32, N>],
    sin: &[Vector<f32, N>],
    positions: &[i32],
    y: &mut [Vector<F, N>],
    pieces: usize,
    groups: usize,
    half: usize,
    width: usize,
    sign: f32,
    last: usize,
    #[comptime] shared: usize,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < pieces {
        let pair = ABSOLUTE_POS % half;
        let group = ABSOLUTE_POS / half;
        let token = group / groups;
        let angle = at_most(positions[token], last) * half + pair;
        let c = cos[angle];
        let s = sin[angle] * Vector::new(sign);
        let first = token * width + (group % groups) * shared * half * 2 + pair;
        let mut left = Array::<Vector<f32, N>>::new(shared);
        let mut right = Array::<Vector<f32, N>>::new(shared);
        #[unroll]
        for head in 0..shared {
            left[head] = Vector::cast_from(x[first + head * half * 2]);
            right[head] = Vector::cast_from(x[first + head * half * 2 + half]);
        }
        #[unroll]
        for head in 0..shared {
            let place = first + head * half * 2;
            y[place] = Vector::cast_from(left[head] * c - right[head] * s);
            y[place + half] = Vector::cast_from(right[head] * c + left[head] * s);
        }
    }
}

/// Turns each pair (x₁, x₂) = (x\[i\], x\[i + d/2\]) of every head by the angle of its token's
/// position: y₁ = x₁ cos − x₂ sin, y₂ = x₂ cos + x₁ sin; `inverse` turns back, which is the
/// backward pass.
///
/// x [T, width], of which the first `columns` are heads · d, cos and sin [P, d/2] f32, positions [T] i32 below P →
/// [T, width], in x's memory where nobody else holds it. A position beyond the table gets its last row.
pub fn rope(
    x: CubeTensor,
    columns: usize,
    cos: &CubeTensor,
    sin: &CubeTensor,
    positions: &CubeTensor,
    inverse: bool,
) -> CubeTensor {
    let (x, positions) = (burn_cubecl::kernel::into_contiguous(x), contiguous(positions));
    let [tokens, width] = sizes(&x, "x");
    // What is not turned must be there.
    let x = if columns == width { x } else { writable(x) };
    let (cos, sin) = (contiguous(cos), contiguous(sin));
    let [table, half] = sizes(&cos, "cos");
    assert!(table > 0, "a table has a row");
    expect(&cos, DType::F32, table * half, "cos");
    expect(&sin, DType::F32, table * half, "sin");
    expect(&positions, DType::I32, tokens, "positions");
    assert!(
        columns.is_multiple_of(2 * half) && columns <= width,
        "{columns} of {width} columns are no heads of {}",
        2 * half
    );
    let vector = vector(DType::F32, &[half, width]);
    let heads = columns / (2 * half);
    let mut shared = MOST_HEADS;
    while !heads.is_multiple_of(shared) {
        shared /= 2;
    }
    let pieces = tokens * columns / 2 / vector / shared;
    let grid = Grid::of(pieces);
    let (y, y_argument) = over(&x, 0, x.dtype);
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
            heads / shared,
            half / vector,
            width / vector,
            if inverse { -1.0 } else { 1.0 },
            table - 1,
            shared,
            float(x.dtype),
        );
    }
    y
}
