//! The element-wise parts of a gated MLP on the CPU: one pass over memory on all cores, in place; in fp32 by the kernels of the
//! crate `cpu-kernels`.
//!
//! Composed of single operators, backward makes eleven passes and several temporaries.

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Element, bf16, f16};
use burn_flex::FlexTensor;
use cpu_kernels::{filled, gate as kernels};
use num_traits::Float;
use rayon::prelude::*;

use crate::ops::activation::{Activation, formula};
use crate::ops::slices::{contiguous, from_numbers, numbers};

/// Elements that a thread takes at a time: three arrays of 16 KiB, which its L1 cache about holds.
const CHUNK: usize = 4096;

/// A stored type and the type it is computed in; it is rounded once, when stored.
trait Stored: Element + bytemuck::Pod {
    type Wide: Float;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! stored {
    ($type:ty, $wide:ty, $widen:expr, $narrow:expr) => {
        impl Stored for $type {
            type Wide = $wide;
            fn widen(self) -> $wide {
                $widen(self)
            }
            fn narrow(wide: $wide) -> Self {
                $narrow(wide)
            }
        }
    };
}
stored!(f64, f64, |x| x, |x| x);
stored!(f16, f32, f16::to_f32, f16::from_f32);
stored!(bf16, f32, bf16::to_f32, bf16::from_f32);

/// Calls a generic function with the tensor's element type, which is not fp32.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::F64 => $function::<f64>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            other => panic!("a gate: {other:?} is not a float type of the CPU backend"),
        }
    };
}

/// s = f(a) and h = s ⊙ b.
pub fn forward_activated(a: FlexTensor, b: FlexTensor, activation: Activation) -> [FlexTensor; 2] {
    if a.dtype() == DType::F32 {
        let (shape, a, b) = (a.shape(), contiguous(a), contiguous(b));
        let (length, mut h) = (shape.num_elements(), Vec::new());
        // SAFETY: the kernel writes every element of both.
        let s = unsafe {
            filled(length, |s| {
                let both = [numbers(&a), numbers(&b)];
                h = filled(length, |h| kernels::activate_and_gate(activation, both, s, h))
            })
        };
        return [s, h].map(|numbers| from_numbers(numbers, shape.clone()));
    }
    // h is rounded once, as without s and as backward makes it.
    let h = by_dtype!(a.dtype(), gate(a.clone(), b, activation));
    [by_dtype!(a.dtype(), activated(a, activation)), h]
}

/// h in the place of a, where `a` is not shared.
pub fn forward(a: FlexTensor, b: FlexTensor, activation: Activation) -> FlexTensor {
    if a.dtype() == DType::F32 {
        let (mut a, b) = (contiguous(a), contiguous(b));
        kernels::gate(activation, a.storage_mut(), numbers(&b));
        return a;
    }
    by_dtype!(a.dtype(), gate(a, b, activation))
}

/// da in the place of a, db in that of b, h in that of dh.
pub fn backward(a: FlexTensor, b: FlexTensor, dh: FlexTensor, activation: Activation) -> [FlexTensor; 3] {
    if a.dtype() == DType::F32 {
        let (mut a, mut b, mut dh) = (contiguous(a), contiguous(b), contiguous(dh));
        kernels::gate_backward(activation, a.storage_mut(), b.storage_mut(), dh.storage_mut());
        return [a, b, dh];
    }
    by_dtype!(a.dtype(), gate_backward(a, b, dh, activation))
}

fn activated<E: Stored>(a: FlexTensor, activation: Activation) -> FlexTensor {
    let mut a = contiguous(a);
    a.storage_mut::<E>().par_chunks_mut(CHUNK).for_each(|a| {
        for a in a {
            *a = E::narrow(formula(activation, a.widen()).0);
        }
    });
    a
}

fn gate<E: Stored>(a: FlexTensor, b: FlexTensor, activation: Activation) -> FlexTensor {
    let (mut a, b) = (contiguous(a), contiguous(b));
    a.storage_mut::<E>().par_chunks_mut(CHUNK).zip(b.storage::<E>().par_chunks(CHUNK)).for_each(|(a, b)| {
        for (a, b) in a.iter_mut().zip(b) {
            *a = E::narrow(formula(activation, a.widen()).0 * b.widen());
        }
    });
    a
}

fn gate_backward<E: Stored>(
    a: FlexTensor,
    b: FlexTensor,
    dh: FlexTensor,
    activation: Activation,
) -> [FlexTensor; 3] {
    let (mut a, mut b, mut dh) = (contiguous(a), contiguous(b), contiguous(dh));
    let chunks = a
        .storage_mut::<E>()
        .par_chunks_mut(CHUNK)
        .zip(b.storage_mut::<E>().par_chunks_mut(CHUNK))
        .zip(dh.storage_mut::<E>().par_chunks_mut(CHUNK));
    chunks.for_each(|((a, b), dh)| {
        for ((a, b), dh) in a.iter_mut().zip(b).zip(dh) {
            let (wide_a, wide_b, wide_dh) = (a.widen(), b.widen(), dh.widen());
            let (s, slope) = formula(activation, wide_a);
            *a = E::narrow(wide_dh * wide_b * slope);
            *b = E::narrow(wide_dh * s);
            *dh = E::narrow(s * wide_b);
        }
    });
    [a, b, dh]
}
