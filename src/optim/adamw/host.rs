//! AdamW on the host: one pass over a buffer that holds a gradient and then the new weights, with fp32
//! master weights and moments.
//!
//! For bf16 the pass reads 12 + 2 and writes 12 + 2 bytes an element. With the vectors of four that every
//! x86-64 has, one division and one root an element bound it; with AVX2's eight the memory does. Two cores of
//! an AMD EPYC: 35 and 48 GB/s ([`rate_of_updates`]).

use std::time::Instant;

use burn::tensor::DType;
use cpu_kernels::adamw::{AdamWStep, update};
use rayon::prelude::*;

use crate::device::elements::{round, widen};
use crate::measure::alloc::{Room, Uncounted};
use crate::optim::host::state::{CHUNK, HostState, HostStep};
use crate::optim::{AdamW, Kept, Visit};

/// Elements converted at a time: their fp32 copies stay in the first-level cache.
const PIECE: usize = 1024;

/// First and second moment of a buffer's parameters, in fp32.
pub struct AdamWOnHost {
    rule: AdamW,
    m: Uncounted,
    v: Uncounted,
    /// Taken so far.
    steps: i32,
}

impl AdamWOnHost {
    /// # Errors
    /// When there is not so much room.
    pub fn new(rule: AdamW, elements: usize, room: &Room) -> Result<Self, String> {
        Ok(Self { rule, m: room.take(4 * elements)?, v: room.take(4 * elements)?, steps: 0 })
    }
}

impl HostState for AdamWOnHost {
    fn step(&mut self, dtype: DType, buffer: &mut [u8], master: &mut [f32], step: HostStep) {
        let HostStep { rate, clip, .. } = step;
        self.steps += 1;
        let step = self.rule.step(Some(self.steps), rate);
        let [m, v] = [&mut self.m, &mut self.v].map(|bytes| bytemuck::cast_slice_mut::<u8, f32>(bytes));
        buffer
            .par_chunks_mut(CHUNK * dtype.size())
            .zip(master.par_chunks_mut(CHUNK))
            .zip(m.par_chunks_mut(CHUNK))
            .zip(v.par_chunks_mut(CHUNK))
            .for_each(|(((buffer, master), m), v)| chunk(dtype, buffer, [master, m, v], step, clip));
    }

    fn visit(&mut self, visit: &mut Visit) {
        visit("m", Kept::Bytes(&mut self.m));
        visit("v", Kept::Bytes(&mut self.v));
        visit("steps", Kept::Bytes(bytemuck::bytes_of_mut(&mut self.steps)));
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

/// Bytes per second that an update of bf16 parameters reads and writes, the best of some; it takes 0.23 GB for a moment.
pub fn rate_of_updates() -> f64 {
    const ELEMENTS: usize = 1 << 24;
    let rule = AdamW::default();
    let mut arrays: [Vec<f32>; 3] = std::array::from_fn(|_| vec![0.1; ELEMENTS]);
    let mut buffer = vec![1u8; 2 * ELEMENTS];
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        let start = Instant::now();
        let [p, m, v] = arrays.each_mut().map(|array| array.par_chunks_mut(CHUNK));
        let parts = buffer.par_chunks_mut(2 * CHUNK).zip(p).zip(m).zip(v);
        parts.for_each(|(((g, p), m), v)| chunk(DType::BF16, g, [p, m, v], rule.step(Some(1), 1.0), 1.0));
        best = best.min(start.elapsed().as_secs_f64());
    }
    28.0 * ELEMENTS as f64 / best
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
