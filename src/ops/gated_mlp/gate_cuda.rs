//! The element-wise parts of a gated MLP on CUDA: one kernel forward, one backward, in place.
//!
//! Each reads and writes every element once, so it takes the time of the memory traffic: NI
//! elements three times forward, six times backward. The arithmetic is fp32 in the registers
//! whatever the tensors' type, so nothing is rounded between the steps of the formula.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::activation::Activation;
use crate::ops::activation::cuda::{value, with_slope};
use crate::ops::kernels::launch::{
    buffer, contiguous, elementwise, expect, float, like, over, vector, writable,
};

/// h = f(a) ⊙ b
#[cube(launch_unchecked)]
fn gate<F: Float, N: Size>(
    a: &[Vector<F, N>],
    b: &[Vector<F, N>],
    h: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < h.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        h[ABSOLUTE_POS] = Vector::cast_from(value::<N>(x, activation) * y);
    }
}

/// s = f(a), h = s ⊙ b
#[cube(launch_unchecked)]
fn activate_and_gate<F: Float, N: Size>(
    a: &[Vector<F, N>],
    b: &[Vector<F, N>],
    s: &mut [Vector<F, N>],
    h: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < h.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        let activated = value::<N>(x, activation);
        s[ABSOLUTE_POS] = Vector::cast_from(activated);
        h[ABSOLUTE_POS] = Vector::cast_from(activated * y);
    }
}

/// a ← da, b ← db, dh ← h: every result takes the place of an operand it is the last to need.
#[cube(launch_unchecked)]
fn gate_backward<F: Float, N: Size>(
    a: &mut [Vector<F, N>],
    b: &mut [Vector<F, N>],
    dh: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < dh.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        let g = Vector::<f32, N>::cast_from(dh[ABSOLUTE_POS]);
        let (activated, slope) = with_slope::<N>(x, activation);
        a[ABSOLUTE_POS] = Vector::cast_from(g * y * slope);
        b[ABSOLUTE_POS] = Vector::cast_from(g * activated);
        dh[ABSOLUTE_POS] = Vector::cast_from(activated * y);
    }
}

/// Elements that a thread takes of `tensors`, of one type and size, and their type.
fn vector_over<const K: usize>(tensors: [&CubeTensor; K]) -> (usize, ElemType) {
    let first = tensors[0];
    let elements = first.meta.num_elements();
    for tensor in tensors {
        expect(tensor, first.dtype, elements, "an operand of the gate");
    }
    (vector(first.dtype, &[elements]), float(first.dtype))
}

/// h, in the place of a where nobody else holds it.
pub fn forward(a: CubeTensor, b: CubeTensor, activation: Activation) -> CubeTensor {
    // Both may be columns of one tensor, which lie apart.
    let [a, b] = [a, b].map(into_contiguous);
    let (vector, element) = vector_over([&a, &b]);
    let (h, to) = over(&a, 0, a.dtype);
    elementwise!(gate, &a, vector, buffer(&a), buffer(&b), to, activation, element);
    h
}

/// s and h.
pub fn forward_activated(a: &CubeTensor, b: &CubeTensor, activation: Activation) -> [CubeTensor; 2] {
    let [a, b] = [&contiguous(a), &contiguous(b)];
    let (vector, element) = vector_over([a, b]);
    let (s, h) = (like(a, a.dtype), like(a, a.dtype));
    let [to_s, to_h] = [&s, &h].map(buffer);
    elementwise!(activate_and_gate, a, vector, buffer(a), buffer(b), to_s, to_h, activation, element);
    [s, h]
}

/// da, db and h, in the memory of a, b and dh where nobody else holds them.
pub fn backward(a: CubeTensor, b: CubeTensor, dh: CubeTensor, activation: Activation) -> [CubeTensor; 3] {
    let [a, b, dh] = [a, b, dh].map(writable);
    let (vector, element) = vector_over([&a, &b, &dh]);
    elementwise!(gate_backward, &a, vector, buffer(&a), buffer(&b), buffer(&dh), activation, element);
    [a, b, dh]
}
