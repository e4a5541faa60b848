//! The operators of transformers on a CPU in fp32: slices in, slices out.
//!
//! Each kernel exists for AVX-512, for AVX2 with FMA and for any other processor; which one runs is found out when the
//! program runs. Work is divided over the threads of the current rayon pool. What one thread computes, and the order in
//! which numbers are added, depends on the sizes alone: results are the same bits in every run on one machine.

pub mod activation;
pub mod adamw;
pub mod attention;
pub mod dynamic_map;
pub mod elementwise;
pub mod gate;
mod math;
pub mod moments;
pub mod nf4;
pub mod norm;
pub mod product;
pub mod random;
pub mod reduce;
mod room;
pub mod rope;
pub mod sgd;
mod simd;
pub mod softmax;

use std::mem::MaybeUninit;

pub use product::{Matrix, Target, product};

/// Which vector instructions the kernels use on this processor.
pub fn vectors() -> &'static str {
    match simd::level() {
        #[cfg(target_arch = "x86_64")]
        simd::Level::Avx512 => "AVX-512",
        #[cfg(target_arch = "x86_64")]
        simd::Level::Avx2 => "AVX2",
        simd::Level::Baseline => "vectors that every processor has",
    }
}

/// Elements that one thread takes at a time of an element-wise operator: four arrays of 32 KiB, which its L2 cache holds.
const CHUNK: usize = 8192;

/// A new vector of `length` numbers that `write` fills.
///
/// # Safety
/// `write` must write every element.
pub unsafe fn filled(length: usize, write: impl FnOnce(&mut [MaybeUninit<f32>])) -> Vec<f32> {
    let mut vector = Vec::with_capacity(length);
    write(&mut vector.spare_capacity_mut()[..length]);
    // SAFETY: `write` has written them.
    unsafe { vector.set_len(length) };
    vector
}
