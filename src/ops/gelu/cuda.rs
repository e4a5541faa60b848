//! GELU in its tanh form ("gelu_new"): y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))).

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::kernels::columns::{Cover, add_planes, sum_partial};
use crate::ops::kernels::launch::{
    buffer, contiguous, elementwise, expect, float, over, sizes, vector, wider,
};

/// 2 √(2/π)
const SLOPE: f32 = 1.595_769_2;
const CUBIC: f32 = 0.044_715;

/// (1 + tanh u) / 2 = σ(2u) for u = √(2/π) · (x + 0.044715 x³)
#[cube]
fn gate<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::new(1.0f32);
    let twice = x * Vector::new(SLOPE) * (one + Vector::new(CUBIC) * x * x);
    one / (one + (-twice).exp())
}

#[cube(launch_unchecked)]
fn forward<F: Float, N: Size>(x: &[Vector<F, N>], y: &mut [Vector<F, N>], #[define(F)] _type: ElemType) {
    if ABSOLUTE_POS < y.len() {
        let value = Vector::<f32, N>::cast_from(x[ABSOLUTE_POS]);
        y[ABSOLUTE_POS] = Vector::cast_from(value * gate::<N>(value));
    }
}

/// g · (s + x · s (1 − s) · 2u′) with s = (1 + tanh u) / 2
#[cube]
fn gradient<N: Size>(x: Vector<f32, N>, g: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::new(1.0f32);
    let s = gate::<N>(x);
    let inner = Vector::new(SLOPE) * (one + Vector::new(comptime!(3.0 * CUBIC)) * x * x);
    g * (s + x * s * (one - s) * inner)
}

#[cube(launch_unchecked)]
fn backward<F: Float, G: Float, N: Size>(
    g: &[Vector<G, N>],
    x: &[Vector<F, N>],
    dx: &mut [Vector<F, N>],
    #[define(F, G)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < dx.len() {
        let value = Vector::<f32, N>::cast_from(x[ABSOLUTE_POS]);
        let upstream = Vector::<f32, N>::cast_from(g[ABSOLUTE_POS]);
        dx[ABSOLUTE_POS] = Vector::cast_from(gradient::<N>(value, upstream));
    }
}

/// As [`backward`], and the sums of dx over the block's rows. What is added is rounded as dx is.
#[cube(launch_unchecked)]
fn backward_and_sums<F: Float, G: Float, N: Size>(
    g: &[Vector<G, N>],
    x: &[Vector<F, N>],
    dx: &mut [Vector<F, N>],
    partial: &mut [Vector<f32, N>],
    rows: usize,
    columns: usize,
    #[define(F, G)] _types: [ElemType; 2],
) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = Vector::<f32, N>::new(0.0f32);
    if column < columns {
        let mut row = (CUBE_POS_Y * CUBE_DIM_Y + UNIT_POS_Y) as usize;
        while row < rows {
            let place = row * columns + column;
            let value = Vector::<f32, N>::cast_from(x[place]);
            let upstream = Vector::<f32, N>::cast_from(g[place]);
            let result = Vector::<F, N>::cast_from(gradient::<N>(value, upstream));
            dx[place] = result;
            sum += Vector::cast_from(result);
            row += (CUBE_COUNT_Y * CUBE_DIM_Y) as usize;
        }
    }
    add_planes::<N>(sum, partial, columns);
}

/// y of x's shape and type, in x's memory where nobody else holds it.
pub fn gelu(x: CubeTensor) -> CubeTensor {
    let x = burn_cubecl::kernel::into_contiguous(x);
    let vector = vector(x.dtype, &[x.meta.num_elements()]);
    let (y, to) = over(&x, 0, x.dtype);
    elementwise!(forward, &x, vector, buffer(&x), to, float(x.dtype));
    y
}

/// dx of x's shape and type from the upstream gradient g; in g's memory where that has x's type
/// and nobody else holds it.
pub fn gelu_backward(x: &CubeTensor, g: CubeTensor) -> CubeTensor {
    let (x, g) = (contiguous(x), burn_cubecl::kernel::into_contiguous(g));
    let elements = x.meta.num_elements();
    expect(&g, g.dtype, elements, "g");
    let vector = vector(wider(x.dtype, g.dtype), &[elements]);
    let (dx, to) = over(&g, 0, x.dtype);
    elementwise!(backward, &x, vector, buffer(&g), buffer(&x), to, [x.dtype, g.dtype].map(float));
    dx
}

/// dx as [`gelu_backward`] of x [R, C], and its sums over the rows, \[C\] of type `sums`.
pub fn gelu_backward_and_sums(x: &CubeTensor, g: CubeTensor, sums: DType) -> (CubeTensor, CubeTensor) {
    let (x, g) = (contiguous(x), burn_cubecl::kernel::into_contiguous(g));
    let [rows, width] = sizes(&x, "x");
    expect(&g, g.dtype, rows * width, "g");
    let cover = Cover::of(rows, width, wider(x.dtype, g.dtype));
    let partial = cover.partial(&x);
    let (dx, dx_argument) = over(&g, 0, x.dtype);
    // SAFETY: the kernel stays within `rows` rows of `columns` vectors and writes one row of sums for each row of
    // blocks.
    unsafe {
        backward_and_sums::launch_unchecked(
            &x.client,
            cover.count(),
            Cover::dim(),
            cover.vector,
            buffer(&g),
            buffer(&x),
            dx_argument,
            buffer(&partial),
            rows,
            cover.columns,
            [float(x.dtype), float(g.dtype)],
        );
    }
    (dx, sum_partial(&partial, None, sums).0)
}
