//! AdamW whose moments take 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), or bf16's 16 with
//! stochastic rounding, between steps. Steps compute in fp32, and parameters move by moments that are not rounded yet.

mod host;
mod threads;

use burn::tensor::{DType, Device, Tensor};
use cpu_kernels::moments::Draws;
use serde::{Deserialize, Serialize};

use crate::device;
use crate::keys::Section;
use crate::measure::alloc::Room;
use crate::ops::backend::{flex, on_cuda, unflex};
use crate::ops::cost::{SMALL, Tensors};
use crate::ops::slices;
use crate::optim::adamw::cuda::{Moments, TOGETHER};
use crate::optim::host::{AdamWOnHost, HostRule, HostState};
use crate::optim::{AdamW, Kept, Pending, Rule, State, StepSize, Visit, zeros};
use host::CompactOnHost;
use threads::{Target, coded_length, step_8bit, step_bf16};

/// AdamW with moments of 8 bits: codes of bitsandbytes' dynamic maps, in blocks of 256 that share their largest number.
/// Tensors of fewer than [`SMALL`] elements keep fp32.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdamW8bit(pub AdamW);

/// AdamW with moments in bf16, which are rounded up or down at random. A decay by a thousandth is too small a change for
/// bf16, but right in the mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdamWBf16(pub AdamW);

impl AdamW8bit {
    /// AdamW's.
    pub const SECTION: Section = AdamW::SECTION;
}

impl AdamWBf16 {
    /// AdamW's.
    pub const SECTION: Section = AdamW::SECTION;
}

impl Rule for AdamW8bit {
    /// Two codes, and two fp32 numbers for each block.
    fn state_bytes(&self, Tensors { elements, small, .. }: Tensors) -> u64 {
        let coded = elements - small;
        8 * small + 2 * coded + 2 * 4 * coded.div_ceil(256)
    }

    /// In place, through copies in the caches.
    fn workspace_bytes(&self, _elements: u64, _stored: u64) -> u64 {
        0
    }

    fn launches(&self, tensors: u64) -> u64 {
        // Small tensors have a launch of their own.
        tensors.div_ceil(TOGETHER) + 1
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        let elements = shape.iter().product::<usize>();
        match (elements as u64) < SMALL {
            true => self.0.state(shape, device),
            false => Box::new(Compact::new(&self.0, Bits::Eight, elements, device)),
        }
    }

    fn share(&self, applied: Tensor<1>, before: Option<Tensor<1>>) -> Tensor<1> {
        self.0.share(applied, before)
    }

    fn on_host(&self) -> Option<HostRule> {
        let rule = self.0.clone();
        Some(Box::new(move |elements, room| {
            if elements as u64 >= SMALL {
                return on_host(&rule, Bits::Eight, elements, room);
            }
            Ok(Box::new(AdamWOnHost::new(rule.clone(), elements, room)?))
        }))
    }
}

impl Rule for AdamWBf16 {
    fn state_bytes(&self, tensors: Tensors) -> u64 {
        2 * 2 * tensors.elements
    }

    /// In place, through copies in the caches.
    fn workspace_bytes(&self, _elements: u64, _stored: u64) -> u64 {
        0
    }

    fn launches(&self, tensors: u64) -> u64 {
        tensors.div_ceil(TOGETHER)
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        Box::new(Compact::new(&self.0, Bits::Sixteen, shape.iter().product(), device))
    }

    fn share(&self, applied: Tensor<1>, before: Option<Tensor<1>>) -> Tensor<1> {
        self.0.share(applied, before)
    }

    fn on_host(&self) -> Option<HostRule> {
        let rule = self.0.clone();
        Some(Box::new(move |elements, room| on_host(&rule, Bits::Sixteen, elements, room)))
    }
}

fn on_host(rule: &AdamW, bits: Bits, elements: usize, room: &Room) -> Result<Box<dyn HostState>, String> {
    Ok(Box::new(CompactOnHost::new(rule.clone(), bits, elements, room)?))
}

/// The bits of a moment between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    Eight,
    Sixteen,
}

impl Bits {
    /// What the moments are called where they are saved: nothing reads those of another kind.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Eight => ["m.8bit.256", "v.8bit.256"],
            Self::Sixteen => ["m.bf16", "v.bf16"],
        }
    }

    /// The random numbers of a tensor in the step with this seed.
    fn draws(seed: u64, tensor: u32) -> Draws {
        Draws { key: [seed as u32, (seed >> 32) as u32], tensor, first: 0 }
    }
}

/// First and second moment on the device, and the number of steps taken.
struct Compact {
    rule: AdamW,
    bits: Bits,
    /// In bf16, or in fp32 numbers whose bits are codes, as [`coded_length`] says. `None` only while an update writes over
    /// them.
    moments: Option<[Tensor<1>; 2]>,
    /// Of the tensor.
    number: u32,
    steps: i32,
}

impl Compact {
    fn new(rule: &AdamW, bits: Bits, elements: usize, device: &Device) -> Self {
        let moment = || match bits {
            Bits::Eight => zeros(coded_length(elements), device),
            Bits::Sixteen => device::zeros([elements], (device, DType::BF16)),
        };
        Self { rule: rule.clone(), bits, moments: Some([moment(), moment()]), number: 0, steps: 0 }
    }
}

impl State for Compact {
    fn update(&mut self, p: Tensor<1>, g: Tensor<1>, size: &StepSize, pending: &mut Pending) -> Tensor<1> {
        self.steps += 1;
        let Self { rule, bits, moments, number, steps } = self;
        let [m, v] = moments.take().expect("between updates");
        if on_cuda(&p) {
            let stored = match bits {
                Bits::Eight => Moments::Coded,
                Bits::Sixteen => Moments::Rounded(Bits::draws(size.seed, *number).key),
            };
            let [p, m, v] = rule.on_device(*steps, (stored, *number), [p, g, m, v], size, pending);
            *moments = Some([m, v]);
            return p;
        }
        let step = rule.step(Some(*steps), size.rate);
        let clip = size.clip_on_host();
        let [mut p, g, mut m, mut v] = [p, g, m, v].map(|tensor| slices::contiguous(flex(tensor)));
        let (p_type, g_type) = (p.dtype(), g.dtype());
        let target = Target::Tensors { p: (p_type, slices::bytes_mut(&mut p)), g: (g_type, g.bytes()) };
        match bits {
            Bits::Eight => {
                step_8bit(target, [m.storage_mut(), v.storage_mut()], step, clip);
            }
            Bits::Sixteen => {
                let moments = [&mut m, &mut v]
                    .map(|moment| bytemuck::cast_slice_mut::<u8, u16>(slices::bytes_mut(moment)));
                step_bf16(target, moments, step, clip, Bits::draws(size.seed, *number));
            }
        }
        *moments = Some([unflex(m), unflex(v)]);
        unflex(p)
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn visit(&mut self, visit: &mut Visit) {
        let moments = self.moments.as_mut().expect("between updates");
        for (name, moment) in self.bits.names().into_iter().zip(moments) {
            visit(name, Kept::Tensor(moment));
        }
        visit("steps", Kept::Bytes(bytemuck::bytes_of_mut(&mut self.steps)));
    }
}

#[cfg(test)]
mod tests;
