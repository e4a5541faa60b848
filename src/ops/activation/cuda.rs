//! Activations: y = f(x), and dx = g · f′(x).

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Activation;
use crate::ops::kernels::columns::{Cover, add_planes, sum_partial};
use crate::ops::kernels::launch::{
    buffer, contiguous, elementwise, expect, float, over, sizes, vector, wider,
};

/// 2 √(2/π)
const SLOPE: f32 = 1.595_769_2;
const CUBIC: f32 = 0.044_715;
/// 1/√2, and the density of the normal distribution at 0.
const ROOT: f32 = std::f32::consts::FRAC_1_SQRT_2;
const DENSITY: f32 = 0.398_942_3;

/// σ(x)
#[cube]
fn sigmoid<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::new(1.0f32);
    one / (one + (-x).exp())
}

/// σ(2u) = (1 + tanh u) / 2 for u = √(2/π) · (x + 0.044715 x³)
#[cube]
fn tanh_gate<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::new(1.0f32);
    sigmoid::<N>(x * Vector::new(SLOPE) * (one + Vector::new(CUBIC) * x * x))
}

/// Φ(x)
#[cube]
fn normal<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let half = Vector::new(0.5f32);
    half + half * (x * Vector::new(ROOT)).erf()
}

/// Where x is below 0 the element of `below`, else that of `above`.
#[cube]
fn by_sign<N: Size>(x: Vector<f32, N>, below: f32, above: Vector<f32, N>) -> Vector<f32, N> {
    let mut result = above;
    #[unroll]
    for k in 0..N::value() {
        result.insert(k, select(x.extract(k) < 0.0f32, below, above.extract(k)));
    }
    result
}

/// f(x)
#[cube]
pub fn value<N: Size>(x: Vector<f32, N>, #[comptime] activation: Activation) -> Vector<f32, N> {
    match comptime!(activation) {
        Activation::Silu => x * sigmoid::<N>(x),
        Activation::GeluTanh => x * tanh_gate::<N>(x),
        Activation::Gelu => x * normal::<N>(x),
        Activation::Relu => by_sign::<N>(x, 0.0f32, x),
    }
}

/// f(x) and f′(x); that of GELU's tanh formula is s + x · s (1 − s) · 2u′ with s = (1 + tanh u) / 2.
#[cube]
pub fn with_slope<N: Size>(
    x: Vector<f32, N>,
    #[comptime] activation: Activation,
) -> (Vector<f32, N>, Vector<f32, N>) {
    let one = Vector::new(1.0f32);
    match comptime!(activation) {
        Activation::Silu => {
            let sigma = sigmoid::<N>(x);
            let silu = x * sigma;
            (silu, sigma + silu * (one - sigma))
        }
        Activation::GeluTanh => {
            let s = tanh_gate::<N>(x);
            let inner = Vector::new(SLOPE) * (one + Vector::new(comptime!(3.0 * CUBIC)) * x * x);
            (x * s, s + x * s * (one - s) * inner)
        }
        Activation::Gelu => {
            let below = normal::<N>(x);
            let density = Vector::new(DENSITY) * (Vector::new(-0.5f32) * x * x).exp();
            (x * below, below + x * density)
        }
        Activation::Relu => {
            // The slope at 0 is 0.
            let zero = Vector::new(0.0f32);
            (by_sign::<N>(x, 0.0f32, x), by_sign::<N>(zero - x, 1.0f32, zero))
        }
    }
}

#[cube(launch_unchecked)]
fn forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    y: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < y.len() {
        let x = Vector::<f32, N>::cast_from(x[ABSOLUTE_POS]);
        y[ABSOLUTE_POS] = Vector::cast_from(value::<N>(x, activation));
    }
}

#[cube(launch_unchecked)]
fn backward<F: Float, G: Float, N: Size>(
    g: &[Vector<G, N>],
    x: &[Vector<F, N>],
    dx: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F, G)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < dx.len() {
        let (_, slope) = with_slope::<N>(Vector::cast_from(x[ABSOLUTE_POS]), activation);
        dx[ABSOLUTE_POS] = Vector::cast_from(Vector::<f32, N>::cast_from(g[ABSOLUTE_POS]) * slope);
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
    #[comptime] activation: Activation,
    #[define(F, G)] _types: [ElemType; 2],
) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = Vector::<f32, N>::new(0.0f32);
    if column < columns {
        let mut row = (CUBE_POS_Y * CUBE_DIM_Y + UNIT_POS_Y) as usize;
        while row < rows {
            let place = row * columns + column;
            let (_, slope) = with_slope::<N>(Vector::cast_from(x[place]), activation);
            let result = Vector::<F, N>::cast_from(Vector::<f32, N>::cast_from(g[place]) * slope);
            dx[place] = result;
            sum += Vector::cast_from(result);
            row += (CUBE_COUNT_Y * CUBE_DIM_Y) as usize;
        }
    }
    add_planes::<N>(sum, partial, columns);
}

/// y of x's shape and type, in x's memory where nobody else holds it.
pub fn activate(x: CubeTensor, activation: Activation) -> CubeTensor {
    let x = burn_cubecl::kernel::into_contiguous(x);
    let vector = vector(x.dtype, &[x.meta.num_elements()]);
    let (y, to) = over(&x, 0, x.dtype);
    elementwise!(forward, &x, vector, buffer(&x), to, activation, float(x.dtype));
    y
}

/// dx of x's shape and type from the upstream gradient g; in g's memory where that has x's type
/// and nobody else holds it.
pub fn activate_backward(x: &CubeTensor, g: CubeTensor, activation: Activation) -> CubeTensor {
    let (x, g) = (contiguous(x), burn_cubecl::kernel::into_contiguous(g));
    let elements = x.meta.num_elements();
    expect(&g, g.dtype, elements, "g");
    let vector = vector(wider(x.dtype, g.dtype), &[elements]);
    let (dx, to) = over(&g, 0, x.dtype);
    let types = [x.dtype, g.dtype].map(float);
    elementwise!(backward, &x, vector, buffer(&g), buffer(&x), to, activation, types);
    dx
}

/// dx as [`activate_backward`] of x [R, C], and its sums over the rows, \[C\] of type `sums`.
pub fn activate_backward_and_sums(
    x: &CubeTensor,
    g: CubeTensor,
    activation: Activation,
    sums: DType,
) -> (CubeTensor, CubeTensor) {
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
            activation,
            [float(x.dtype), float(g.dtype)],
        );
    }
    (dx, sum_partial(&partial, None, sums).0)
}
