//! AdamW on the host: one pass over a buffer that holds a gradient and then the new weights, beside fp32
//! master weights and moments.
//!
//! The pass is bound by memory: for bf16 it reads 12 + 2 and writes 12 + 2 bytes an element. With the
//! vector instructions that every x86-64 has, one core does 28 GB/s of that from its cache (AMD EPYC),
//! more than its share of any memory: wider ones would gain nothing on all cores.

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

/// A step on elements of one thread.
fn chunk(dtype: DType, buffer: &mut [u8], [p, m, v]: [&mut [f32]; 3], step: AdamWStep, clip: f32) {
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
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding must not carry a NaN into infinity.
    let quiet = (bits >> 16) | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::UpdateRule;
    use crate::optim::adamw;
    use burn::tensor::{Device, Distribution, Tensor};

    fn buffer(bytes: &[u8]) -> Uncounted {
        let mut buffer = Uncounted::new(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn list(tensor: &Tensor<1>) -> Vec<f32> {
        tensor.to_data().try_to_vec().unwrap()
    }

    /// More than a chunk, and no whole number of pieces.
    const ELEMENTS: usize = CHUNK + 1500;

    /// The optimizer of the device and the host's, fed the same gradients, after 50 steps.
    #[test]
    fn fifty_steps_equal_the_device_optimizer() {
        let device = Device::flex();
        device.seed(7);
        let random =
            |deviation| Tensor::<1>::random([ELEMENTS], Distribution::Normal(0.0, deviation), &device);
        let rule = AdamW { lr: 1e-2, weight_decay: 0.1, ..AdamW::default() };
        let mut p = random(0.5);
        let mut ours = buffer(bytemuck::cast_slice(&list(&p)));
        let mut host = State::new(ELEMENTS, DType::F32).unwrap();
        host.apply(&rule, Work::Adopt(DType::F32), &mut ours);
        let before = list(&p);
        let mut theirs = adamw::State::default();
        for step in 0..50 {
            let g = random(1e-3 * f64::from(1 + step % 7));
            let rate = 1.0 - f64::from(step) / 100.0;
            let clip = Tensor::<1>::from_floats([0.5], &device);
            let size = StepSize { rate, clip: (step % 2 == 0).then_some(clip), applied: None };
            ours.copy_from_slice(bytemuck::cast_slice(&list(&g)));
            host.apply(&rule, Work::step(&size), &mut ours);
            p = rule.update(p, g, &mut theirs, &size);
        }
        let ours: &[f32] = bytemuck::cast_slice(&ours);
        let largest = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(largest(ours, &list(&p)) < 1e-6, "{}", largest(ours, &list(&p)));
        assert!(largest(ours, &before) > 0.1, "the steps go somewhere");
    }

    /// Steps smaller than the weights' last bit add up in the master weights.
    #[test]
    fn half_precision_weights_follow_their_masters() {
        for dtype in [DType::BF16, DType::F16] {
            let mut bytes = vec![0; 2 * 3];
            round(dtype, &[1.0, -2.0, 0.5], &mut bytes);
            let mut buffer = buffer(&bytes);
            let mut state = State::new(3, dtype).unwrap();
            let rule = AdamW { lr: 1e-4, weight_decay: 0.0, ..AdamW::default() };
            state.apply(&rule, Work::Adopt(dtype), &mut buffer);
            for _ in 0..100 {
                round(dtype, &[0.1, -0.1, 0.0], &mut buffer);
                state.apply(&rule, Work::Step { rate: 1.0, clip: 1.0 }, &mut buffer);
            }
            let mut weights = [0.0; 3];
            widen(dtype, &buffer, &mut weights);
            // A hundred steps of 1e-4 against the gradient's sign, rounded to 8 bits.
            for (ours, exact) in weights.iter().zip([0.99, -1.99, 0.5]) {
                assert!((ours - exact).abs() < 0.004, "{dtype:?}: {weights:?}");
            }
            buffer.fill(0);
            state.apply(&rule, Work::Restore, &mut buffer);
            let mut restored = [0.0; 3];
            widen(dtype, &buffer, &mut restored);
            assert_eq!(restored, weights);
        }
    }

    #[test]
    fn bf16_rounds_to_the_nearest_and_keeps_infinities_and_nan() {
        // Half-way between two bf16 numbers, to the even one below and above; and beside such a place.
        let (below, above) = (1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0);
        let values = [0.0, 1.0, below, above, -below * 1.000_001, 3.4e38, f32::INFINITY, f32::MIN_POSITIVE];
        for value in values {
            assert_eq!(bf16_bits(value), half::bf16::from_f32(value).to_bits(), "{value}");
        }
        assert!(half::bf16::from_bits(bf16_bits(f32::from_bits(0x7f80_0001))).is_nan());
    }
}
