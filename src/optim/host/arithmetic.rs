//! AdamW on the host: one pass over a buffer that holds a gradient and then the new weights, beside fp32
//! master weights and moments.
//!
//! For bf16 the pass reads 12 + 2 and writes 12 + 2 bytes an element. With the vectors of four that every
//! x86-64 has, one division and one root an element bound it; with AVX2's eight the memory does. Two cores of
//! an AMD EPYC: 35 and 48 GB/s (`cargo test --release rate_of_updates -- --ignored --nocapture`).

use burn::tensor::DType;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use rayon::prelude::*;

use crate::device::HostMemory;
use crate::measure::alloc::Uncounted;
use crate::ops::kernels::adamw::AdamWStep;
use crate::optim::{AdamW, StepSize};

/// What a buffer gets from the state of its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It holds weights of this type: they become the master weights.
    Adopt(DType),
    /// It holds gradients: one step, and it holds the new weights.
    Step {
        /// Factor of the learning rate.
        rate: f64,
        /// Factor of every gradient.
        clip: f32,
    },
    /// Whatever it holds: it gets the weights.
    Restore,
}

impl Work {
    /// A step of this size; waits for the norm of the gradients where they are clipped.
    pub fn step(size: &StepSize) -> Self {
        Self::Step { rate: size.rate, clip: size.clip.clone().map_or(1.0, |clip| clip.into_scalar()) }
    }
}

/// Master weights, first and second moment of as many elements as its buffer has; fp32, in ordinary
/// memory that the device's figures leave out.
pub struct State {
    dtype: DType,
    master: Uncounted,
    m: Uncounted,
    v: Uncounted,
    /// Taken so far.
    steps: i32,
}

/// Elements that one thread works on at a time: 1 MiB of each fp32 array.
const CHUNK: usize = 1 << 18;
/// Elements converted at a time: their fp32 copies stay in the first-level cache.
const PIECE: usize = 1024;

impl State {
    /// Of a buffer of elements of `dtype`.
    ///
    /// # Errors
    /// When the host has not so much memory.
    pub fn new(elements: usize, dtype: DType) -> Result<Self, String> {
        let zeros = || Uncounted::new(4 * elements);
        Ok(Self { dtype, master: zeros()?, m: zeros()?, v: zeros()?, steps: 0 })
    }

    /// Does the work on the threads of the current rayon pool.
    ///
    /// # Panics
    /// When the buffer has another size than its state.
    pub fn apply(&mut self, rule: &AdamW, work: Work, buffer: &mut dyn HostMemory) {
        let dtype = self.dtype;
        let buffer = buffer.bytes_mut();
        let [master, m, v] = [&mut self.master, &mut self.m, &mut self.v]
            .map(|bytes| bytemuck::cast_slice_mut::<u8, f32>(bytes));
        assert_eq!(buffer.len(), master.len() * dtype.size(), "a buffer of the state's size");
        let parts = buffer.par_chunks_mut(CHUNK * dtype.size()).zip(master.par_chunks_mut(CHUNK));
        match work {
            Work::Adopt(_) => parts.for_each(|(buffer, master)| widen(dtype, buffer, master)),
            Work::Restore => parts.for_each(|(buffer, master)| round(dtype, master, buffer)),
            Work::Step { rate, clip } => {
                self.steps += 1;
                let step = rule.step(Some(self.steps), rate);
                parts
                    .zip(m.par_chunks_mut(CHUNK))
                    .zip(v.par_chunks_mut(CHUNK))
                    .for_each(|(((buffer, master), m), v)| chunk(dtype, buffer, [master, m, v], step, clip));
            }
        }
    }
}

/// A step on elements of one thread, with the widest vectors that the core has.
fn chunk(dtype: DType, buffer: &mut [u8], state: [&mut [f32]; 3], step: AdamWStep, clip: f32) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the core has the instructions.
        return unsafe { chunk_avx2(dtype, buffer, state, step, clip) };
    }
    pass(dtype, buffer, state, step, clip);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn chunk_avx2(dtype: DType, buffer: &mut [u8], state: [&mut [f32]; 3], step: AdamWStep, clip: f32) {
    pass(dtype, buffer, state, step, clip);
}

#[inline(always)]
fn pass(dtype: DType, buffer: &mut [u8], [p, m, v]: [&mut [f32]; 3], step: AdamWStep, clip: f32) {
    let mut g = [0.0f32; PIECE];
    let pieces = p.chunks_mut(PIECE).zip(m.chunks_mut(PIECE)).zip(v.chunks_mut(PIECE));
    for (buffer, ((p, m), v)) in buffer.chunks_mut(PIECE * dtype.size()).zip(pieces) {
        let g = &mut g[..p.len()];
        widen(dtype, buffer, g);
        update(g, p, m, v, step, clip);
        round(dtype, p, buffer);
    }
}

/// The formula of [`AdamWStep`], with one division and one root an element.
#[inline(always)]
fn update(g: &[f32], p: &mut [f32], m: &mut [f32], v: &mut [f32], step: AdamWStep, clip: f32) {
    let AdamWStep { decay, beta1, beta2, rest1, rest2, eps, rate, correction } = step;
    let scale = 1.0 / correction;
    for (((g, p), m), v) in g.iter().zip(p).zip(m).zip(v) {
        let g = g * clip;
        *m = beta1 * *m + rest1 * g;
        *v = beta2 * *v + rest2 * g * g;
        *p = *p * decay - rate * *m / (v.sqrt() * scale + eps);
    }
}

/// Elements of `dtype` as fp32.
#[inline(always)]
fn widen(dtype: DType, from: &[u8], to: &mut [f32]) {
    match dtype {
        DType::F32 => to.copy_from_slice(bytemuck::cast_slice(from)),
        DType::BF16 => {
            let from: &[u16] = bytemuck::cast_slice(from);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_bits(u32::from(*from) << 16));
        }
        DType::F16 => f16s(from).convert_to_f32_slice(to),
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}

/// fp32 as elements of `dtype`, rounded to the nearest, of two to the even one.
#[inline(always)]
fn round(dtype: DType, from: &[f32], to: &mut [u8]) {
    match dtype {
        DType::F32 => to.copy_from_slice(bytemuck::cast_slice(from)),
        DType::BF16 => {
            let to: &mut [u16] = bytemuck::cast_slice_mut(to);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = bf16_bits(*from));
        }
        DType::F16 => f16s_mut(to).convert_from_f32_slice(from),
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}

fn f16s(bytes: &[u8]) -> &[f16] {
    bytemuck::cast_slice::<u8, u16>(bytes).reinterpret_cast()
}

fn f16s_mut(bytes: &mut [u8]) -> &mut [f16] {
    bytemuck::cast_slice_mut::<u8, u16>(bytes).reinterpret_cast_mut()
}

/// As `half::bf16::from_f32`, without branches, so that the loop around it becomes vector instructions.
#[inline(always)]
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding must not carry a NaN into infinity.
    let quiet = (bits >> 16) | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

#[cfg(test)]
#[path = "arithmetic_tests.rs"]
mod tests;
