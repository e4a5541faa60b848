//! [`Remainders`]: master weights in fp32 without a copy. A bf16 parameter is its master rounded, and 16 bits beside it are
//! what rounding took away (as `store_param_remainders` of NVIDIA's Apex and Transformer Engine): together they are the
//! master, bit for bit.
//!
//! ```text
//! high = (master + 2¹⁵) >> 16                as integers: the nearest bf16, of two the one farther from 0
//! low  = master − (high << 16)               from −2¹⁵ to 2¹⁵ − 1
//! ```

use burn::tensor::{DType, Device, Tensor, TensorData};
use rayon::prelude::*;

use super::{Kept, Pending, Rule, State, StepSize, Visit};
use crate::device;
use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::cost::Tensors;
use crate::ops::wide;

/// Elements of a thread at a time.
const CHUNK: usize = 1 << 14;

/// A rule of AdamW's kernels whose parameters are in bf16. One in fp32 is its own master.
pub struct Remainders(pub Box<dyn Rule>);

impl Rule for Remainders {
    /// The rule's own, and two bytes a parameter.
    fn state_bytes(&self, tensors: Tensors) -> u64 {
        self.0.state_bytes(tensors) + 2 * tensors.elements
    }

    /// The master, the gradient and the new parameter, besides what the rule takes to update the master.
    fn workspace_bytes(&self, elements: u64, _stored: u64) -> u64 {
        (4 + 4 + 2) * elements + self.0.workspace_bytes(elements, 4)
    }

    fn launches(&self, tensors: u64) -> u64 {
        self.0.launches(tensors)
    }

    fn has_kernel(&self) -> bool {
        self.0.has_kernel()
    }

    fn reads_matrices(&self) -> bool {
        self.0.reads_matrices()
    }

    fn share(&self, applied: Tensor<1>, before: Option<Tensor<1>>) -> Tensor<1> {
        self.0.share(applied, before)
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        let elements: usize = shape.iter().product();
        let low = Some(device::zeros([elements], (device, DType::BF16)));
        Box::new(Split { rule: self.0.state(shape, device), low })
    }
}

/// What the rule keeps of a parameter, and its remainders.
struct Split {
    rule: Box<dyn State>,
    /// In bf16 numbers whose bits are the remainders. `None` only while an update writes over them.
    low: Option<Tensor<1>>,
}

impl State for Split {
    fn update(&mut self, p: Tensor<1>, g: Tensor<1>, size: &StepSize, pending: &mut Pending) -> Tensor<1> {
        if p.dtype() != DType::BF16 {
            return self.rule.update(p, g, size, pending);
        }
        let low = self.low.take().expect("between updates");
        if on_cuda(&p) {
            let rule = &mut self.rule;
            let (p, low) = pending.with_remainders(cube(low), |pending| rule.update(p, g, size, pending));
            self.low = Some(uncube(low));
            return p;
        }
        let (device, elements) = (p.device(), p.dims()[0]);
        let master = {
            let (high, low) = (p.into_data(), low.into_data());
            let [high, low] = [&high, &low].map(|data| bytemuck::cast_slice::<u8, u16>(data.as_bytes()));
            let master: Vec<f32> =
                high.par_iter().zip(low).with_min_len(CHUNK).map(|(h, l)| join(*h, *l)).collect();
            Tensor::<1>::from_data(TensorData::new(master, [elements]), (&device, DType::F32))
        };
        let master = self.rule.update(master, wide(g), size, pending).into_data();
        let master: &[f32] = master.as_slice().expect("fp32");
        let (high, low): (Vec<u16>, Vec<u16>) =
            master.par_iter().with_min_len(CHUNK).map(|master| split(*master)).unzip();
        let tensor = |bits: Vec<u16>| {
            let numbers: Vec<_> = bits.into_iter().map(half::bf16::from_bits).collect();
            Tensor::from_data(TensorData::new(numbers, [elements]), (&device, DType::BF16))
        };
        self.low = Some(tensor(low));
        tensor(high)
    }

    fn set_number(&mut self, number: u32) {
        self.rule.set_number(number);
    }

    fn visit(&mut self, visit: &mut Visit) {
        self.rule.visit(visit);
        visit("remainders", Kept::Tensor(self.low.as_mut().expect("between updates")));
    }
}

/// A master as its bf16 and its remainder. What is not a number has none.
fn split(master: f32) -> (u16, u16) {
    let bits = master.to_bits();
    if master.is_nan() {
        return ((bits >> 16) as u16 | 0x40, 0);
    }
    let high = (bits + (1 << 15)) >> 16;
    (high as u16, bits.wrapping_sub(high << 16) as u16)
}

fn join(high: u16, low: u16) -> f32 {
    let low = i32::from(low.cast_signed()).cast_unsigned();
    f32::from_bits((u32::from(high) << 16).wrapping_add(low))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;
    use crate::device::drawing;
    use crate::optim::{AdamW, AdamW8bit, AdamWBf16};

    #[test]
    fn the_two_halves_are_the_master() {
        let mut bits = 0u32;
        for _ in 0..200_000 {
            bits = bits.wrapping_add(0x9e37_79b9);
            for bits in [bits, bits & 0xffff_8000, bits & 0xffff_0000] {
                let master = f32::from_bits(bits);
                let (high, low) = split(master);
                let rounded = f32::from_bits(u32::from(high) << 16);
                if master.is_nan() {
                    assert!(join(high, low).is_nan() && rounded.is_nan());
                    continue;
                }
                assert_eq!(join(high, low).to_bits(), bits);
                // No other bf16 is nearer.
                let nearest = half::bf16::from_f32(master).to_f32();
                let far = |bf16: f32| (f64::from(bf16) - f64::from(master)).abs();
                assert!(rounded.is_infinite() || far(rounded) == far(nearest), "{master:e}");
            }
        }
        assert_eq!(split(f32::INFINITY), (0x7f80, 0));
    }

    /// A parameter in fp32 beside one in bf16 with remainders: the same masters after each of 100 steps, though bf16 alone
    /// would not move.
    #[test]
    fn steps_are_those_of_a_master_in_fp32() {
        let _drawing = drawing();
        let device = Device::flex();
        device.seed(5);
        let rule = AdamW { lr: 1e-3, ..AdamW::default() };
        let rules: [Box<dyn Rule>; 3] =
            [Box::new(rule.clone()), Box::new(AdamW8bit(rule.clone())), Box::new(AdamWBf16(rule))];
        for rule in rules {
            let elements = 5001;
            let first =
                Tensor::<1>::random([elements], Distribution::Normal(0.0, 1.0), (&device, DType::BF16));
            let mut wide_state = rule.state(&[elements], &device);
            let mut split_state = Remainders(rule).state(&[elements], &device);
            let (mut master, mut p) = (wide(first.clone()), first.clone());
            for step in 0..100 {
                let g =
                    Tensor::<1>::random([elements], Distribution::Normal(0.1, 1.0), (&device, DType::BF16));
                let clip = (step % 3 == 0).then(|| Tensor::<1>::from_floats([0.5], &device));
                let size = StepSize { clip, seed: step, ..StepSize::FULL };
                master = wide_state.update(master, wide(g.clone()), &size, &mut Pending::default());
                p = split_state.update(p, g, &size, &mut Pending::default());
                assert_eq!(p.dtype(), DType::BF16);
                let mut low = Vec::new();
                split_state.visit(&mut |name, kept| {
                    if name == "remainders" {
                        low = bytemuck::cast_slice::<u8, u16>(&kept.bytes()).to_vec();
                    }
                });
                let high = p.to_data();
                let high: &[u16] = bytemuck::cast_slice(high.as_bytes());
                let ours: Vec<f32> = high.iter().zip(&low).map(|(high, low)| join(*high, *low)).collect();
                assert_eq!(ours, master.to_data().try_to_vec::<f32>().unwrap(), "step {step}");
            }
            let moved = |p: Tensor<1>| (p - wide(first.clone())).abs().mean().into_scalar::<f32>();
            assert!(moved(master) > 1e-4 && moved(wide(p)) > 1e-4);
        }
    }
}
