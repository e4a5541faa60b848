//! Conversions and sums of tensors, element by element.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{
    buffer, contiguous, elementwise, empty, expect, float, like, over, sizes, vector, wider, writable,
};
use crate::device::cuda;

#[cube(launch_unchecked)]
fn convert<A: Float, B: Float, N: Size>(
    a: &[Vector<A, N>],
    b: &mut [Vector<B, N>],
    #[define(A, B)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < b.len() {
        b[ABSOLUTE_POS] = Vector::cast_from(a[ABSOLUTE_POS]);
    }
}

#[cube(launch_unchecked)]
fn sum_of_two<A: Float, B: Float, N: Size>(
    a: &[Vector<A, N>],
    b: &[Vector<B, N>],
    out: &mut [Vector<A, N>],
    #[define(A, B)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < out.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        out[ABSOLUTE_POS] = Vector::cast_from(x + y);
    }
}

/// As [`convert`], and zeros behind the end of a.
#[cube(launch_unchecked)]
fn copy_padded<A: Float, N: Size>(a: &[Vector<A, N>], b: &mut [Vector<A, N>], #[define(A)] _type: ElemType) {
    if ABSOLUTE_POS < b.len() {
        let mut value = Vector::<A, N>::cast_from(Vector::<f32, N>::new(0.0f32));
        if ABSOLUTE_POS < a.len() {
            value = a[ABSOLUTE_POS];
        }
        b[ABSOLUTE_POS] = value;
    }
}

#[cube(launch_unchecked)]
fn multiply<A: Float, B: Float, N: Size>(
    a: &[Vector<A, N>],
    factor: &[f32],
    b: &mut [Vector<B, N>],
    #[define(A, B)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < b.len() {
        let product = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]) * Vector::new(factor[0]);
        b[ABSOLUTE_POS] = Vector::cast_from(product);
    }
}

/// x [R, C] with rows of zeros behind it, [rows, C].
pub fn padded_rows(x: &CubeTensor, rows: usize) -> CubeTensor {
    let x = contiguous(x);
    let [before, columns] = sizes(&x, "x");
    assert!(rows >= before, "{rows} rows hold {before}");
    let out = empty(&x, [rows, columns], x.dtype);
    let vector = vector(x.dtype, &[columns]);
    elementwise!(copy_padded, &out, vector, buffer(&x), buffer(&out), float(x.dtype));
    out
}

/// x times `factor` [1] f32, as `dtype`; in x's memory where that is x's type and nobody else holds it.
pub fn scaled(x: CubeTensor, factor: &CubeTensor, dtype: DType) -> CubeTensor {
    let x = burn_cubecl::kernel::into_contiguous(x);
    expect(factor, DType::F32, 1, "factor");
    let vector = vector(wider(x.dtype, dtype), &[x.meta.num_elements()]);
    let (out, to) = over(&x, 0, dtype);
    elementwise!(multiply, &x, vector, buffer(&x), buffer(factor), to, [x.dtype, dtype].map(float));
    out
}

/// `x` as `dtype`; `x` itself when it is that already.
pub fn cast(x: CubeTensor, dtype: DType) -> CubeTensor {
    if x.dtype == dtype {
        return x;
    }
    let x = contiguous(&x);
    let out = like(&x, dtype);
    let vector = vector(wider(x.dtype, dtype), &[x.meta.num_elements()]);
    elementwise!(convert, &x, vector, buffer(&x), buffer(&out), [x.dtype, dtype].map(float));
    out
}

/// All of them as another type, in few launches.
pub fn cast_all(tensors: &[CubeTensor], dtype: DType) -> Vec<CubeTensor> {
    let pairs: Vec<_> = tensors.iter().map(|x| [contiguous(x), like(x, dtype)]).collect();
    cuda::cast(&pairs);
    pairs.into_iter().map(|[_, cast]| cast).collect()
}

/// Sums of pairs of tensors that are launched together, when this is dropped.
#[derive(Default)]
pub struct Sums(Vec<[CubeTensor; 2]>);

impl Sums {
    /// a + b of one shape, in a's type; in a's memory where nobody else holds it. It holds the sum when the launch has been
    /// made.
    pub fn add(&mut self, a: CubeTensor, b: &CubeTensor) -> CubeTensor {
        let a = writable(a);
        self.add_to(a.clone(), b);
        a
    }

    /// The same in a's memory, whoever else holds it.
    pub fn add_to(&mut self, a: CubeTensor, b: &CubeTensor) {
        self.0.push([contiguous(b), a]);
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        cuda::add(&self.0);
    }
}

/// a + b of one shape, in a's type; in a's memory where nobody else holds it.
pub fn add(a: CubeTensor, b: &CubeTensor) -> CubeTensor {
    let (a, b) = (burn_cubecl::kernel::into_contiguous(a), contiguous(b));
    let elements = a.meta.num_elements();
    expect(&b, b.dtype, elements, "b");
    let vector = vector(wider(a.dtype, b.dtype), &[elements]);
    let (out, to) = over(&a, 0, a.dtype);
    elementwise!(sum_of_two, &a, vector, buffer(&a), buffer(&b), to, [a.dtype, b.dtype].map(float));
    out
}
