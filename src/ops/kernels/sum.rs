//! Sums over whole tensors, in two kernels: blocks add their parts, one block adds the blocks.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{THREADS, buffer, contiguous, elementwise, empty, expect, float, like, vector, wider};
use super::row::{row_sum, scratch};
use crate::device::cuda;

/// Blocks of the first kernel: a few on each multiprocessor.
const BLOCKS: usize = 1024;

/// What is added for each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Term {
    Value,
    Square,
}

/// out[block] = factor · Σ term(x) over the elements that the block takes.
#[cube(launch_unchecked)]
fn add_terms<F: Float, N: Size>(
    x: &[Vector<F, N>],
    out: &mut [f32],
    factor: f32,
    #[comptime] squared: bool,
    #[define(F)] _type: ElemType,
) {
    let mut scratch = scratch(THREADS, 1usize);
    let mut sum = Vector::<f32, N>::new(0.0f32);
    let mut place = ABSOLUTE_POS;
    while place < x.len() {
        let value = Vector::<f32, N>::cast_from(x[place]);
        if comptime!(squared) {
            sum += value * value;
        } else {
            sum += value;
        }
        place += CUBE_COUNT_X as usize * THREADS;
    }
    let total = row_sum(sum.vector_sum(), &mut scratch, THREADS);
    if UNIT_POS == 0 {
        out[CUBE_POS_X as usize] = total * factor;
    }
}

/// out[block] = Σ (a − b)² over the elements that the block takes.
#[cube(launch_unchecked)]
fn add_square_differences<A: Float, B: Float, N: Size>(
    a: &[Vector<A, N>],
    b: &[Vector<B, N>],
    out: &mut [f32],
    #[define(A, B)] _types: [ElemType; 2],
) {
    let mut scratch = scratch(THREADS, 1usize);
    let mut sum = Vector::<f32, N>::new(0.0f32);
    let mut place = ABSOLUTE_POS;
    while place < a.len() {
        let d = Vector::<f32, N>::cast_from(a[place]) - Vector::cast_from(b[place]);
        sum += d * d;
        place += CUBE_COUNT_X as usize * THREADS;
    }
    let total = row_sum(sum.vector_sum(), &mut scratch, THREADS);
    if UNIT_POS == 0 {
        out[CUBE_POS_X as usize] = total;
    }
}

/// dy = (y − target) · factor · scale[0]
#[cube(launch_unchecked)]
fn difference<A: Float, B: Float, N: Size>(
    y: &[Vector<A, N>],
    target: &[Vector<B, N>],
    scale: &[f32],
    dy: &mut [Vector<A, N>],
    factor: f32,
    #[define(A, B)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < dy.len() {
        let d = Vector::<f32, N>::cast_from(y[ABSOLUTE_POS]) - Vector::cast_from(target[ABSOLUTE_POS]);
        dy[ABSOLUTE_POS] = Vector::cast_from(d * Vector::new(factor * scale[0]));
    }
}

/// Σ x: x f32 of any shape → [1] f32.
pub fn sum(x: &CubeTensor) -> CubeTensor {
    expect(x, DType::F32, x.meta.num_elements(), "x");
    reduce(x, Term::Value)
}

/// Σ x² over all of `tensors`, of any float types and shapes → [1] f32. Infinities and NaN carry over. The tensors of one
/// type take a few launches together.
///
/// # Panics
/// Without a tensor.
pub fn sum_of_squares(tensors: &[CubeTensor]) -> CubeTensor {
    if let [one] = tensors {
        return reduce(one, Term::Square);
    }
    let count = |x: &CubeTensor| cuda::parts_of_squares(x.meta.num_elements());
    let parts = empty(&tensors[0], [tensors.iter().map(count).sum::<usize>()], DType::F32);
    let mut first = 0;
    let pair = |x: &CubeTensor| {
        let place = first..first + count(x);
        first = place.end;
        [contiguous(x), cuda::part(&parts, place)]
    };
    cuda::squares(&tensors.iter().map(pair).collect::<Vec<_>>());
    reduce(&parts, Term::Value)
}

/// Σ (y − target)² / n: y and target of one shape → [1] f32.
pub fn mean_square_difference(y: &CubeTensor, target: &CubeTensor) -> CubeTensor {
    let (y, target) = (contiguous(y), contiguous(target));
    let elements = y.meta.num_elements();
    expect(&target, target.dtype, elements, "target");
    let vector = vector(wider(y.dtype, target.dtype), &[elements]);
    let blocks = (elements / vector).div_ceil(THREADS).min(BLOCKS);
    let partial = empty(&y, [blocks], DType::F32);
    // SAFETY: the kernel stays within the elements and writes one sum for each block.
    unsafe {
        add_square_differences::launch_unchecked(
            &y.client,
            CubeCount::Static(blocks as u32, 1, 1),
            CubeDim::new_1d(THREADS as u32),
            vector,
            buffer(&y),
            buffer(&target),
            buffer(&partial),
            [float(y.dtype), float(target.dtype)],
        );
    }
    total(&partial, 1.0 / elements as f32)
}

/// 2 (y − target) / n · scale: the gradient of [`mean_square_difference`] by y for the upstream
/// gradient scale [1] f32, in y's shape and type.
pub fn mean_square_difference_backward(
    y: &CubeTensor,
    target: &CubeTensor,
    scale: &CubeTensor,
) -> CubeTensor {
    let (y, target) = (contiguous(y), contiguous(target));
    let elements = y.meta.num_elements();
    expect(&target, target.dtype, elements, "target");
    expect(scale, DType::F32, 1, "scale");
    let vector = vector(wider(y.dtype, target.dtype), &[elements]);
    let dy = like(&y, y.dtype);
    elementwise!(
        difference,
        &y,
        vector,
        buffer(&y),
        buffer(&target),
        buffer(scale),
        buffer(&dy),
        2.0 / elements as f32,
        [y.dtype, target.dtype].map(float),
    );
    dy
}

/// [1] f32
fn reduce(x: &CubeTensor, term: Term) -> CubeTensor {
    let blocks = x.meta.num_elements().div_ceil(THREADS * 4).min(BLOCKS);
    let parts = empty(x, [blocks], DType::F32);
    add(x, &parts, blocks, 1.0, term);
    if blocks == 1 { parts } else { total(&parts, 1.0) }
}

/// factor · Σ parts: [1] f32
fn total(parts: &CubeTensor, factor: f32) -> CubeTensor {
    let out = empty(parts, [1], DType::F32);
    add(parts, &out, 1, factor, Term::Value);
    out
}

/// out[..blocks] = the parts of factor · Σ term(x).
fn add(x: &CubeTensor, out: &CubeTensor, blocks: usize, factor: f32, term: Term) {
    assert!(blocks <= out.meta.num_elements(), "a place for every block");
    let x = contiguous(x);
    let vector = vector(x.dtype, &[x.meta.num_elements()]);
    // SAFETY: the kernel stays within the elements of `x` and writes one sum for each block.
    unsafe {
        add_terms::launch_unchecked(
            &x.client,
            CubeCount::Static(blocks as u32, 1, 1),
            CubeDim::new_1d(THREADS as u32),
            vector,
            buffer(&x),
            buffer(out),
            factor,
            term == Term::Square,
            float(x.dtype),
        );
    }
}
