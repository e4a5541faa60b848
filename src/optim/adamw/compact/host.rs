//! The moments of few bits of a buffer on the host.

use burn::tensor::DType;

use super::Bits;
use super::threads::{Target, coded_length, step_8bit, step_bf16};
use crate::measure::alloc::{Room, Uncounted};
use crate::optim::host::{HostState, HostStep};
use crate::optim::{AdamW, Kept, Visit};

/// First and second moment.
pub struct CompactOnHost {
    rule: AdamW,
    bits: Bits,
    moments: [Uncounted; 2],
    /// Of the tensor.
    number: u32,
    /// Taken so far.
    steps: i32,
}

impl CompactOnHost {
    /// # Errors
    /// When there is not so much room.
    pub fn new(rule: AdamW, bits: Bits, elements: usize, room: &Room) -> Result<Self, String> {
        let bytes = match bits {
            Bits::Eight => 4 * coded_length(elements),
            Bits::Sixteen => 2 * elements,
        };
        Ok(Self { rule, bits, moments: [room.take(bytes)?, room.take(bytes)?], number: 0, steps: 0 })
    }
}

impl HostState for CompactOnHost {
    fn step(&mut self, dtype: DType, buffer: &mut [u8], master: &mut [f32], step: HostStep) {
        let HostStep { rate, clip, seed } = step;
        self.steps += 1;
        let step = self.rule.step(Some(self.steps), rate);
        let target = Target::Buffer { dtype, buffer, master };
        match self.bits {
            Bits::Eight => {
                let moments = self.moments.each_mut().map(|bytes| bytemuck::cast_slice_mut::<u8, f32>(bytes));
                step_8bit(target, moments, step, clip);
            }
            Bits::Sixteen => {
                let moments = self.moments.each_mut().map(|bytes| bytemuck::cast_slice_mut::<u8, u16>(bytes));
                step_bf16(target, moments, step, clip, Bits::draws(seed, self.number));
            }
        }
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn visit(&mut self, visit: &mut Visit) {
        for (name, moment) in self.bits.names().into_iter().zip(&mut self.moments) {
            visit(name, Kept::Bytes(moment));
        }
        visit("steps", Kept::Bytes(bytemuck::bytes_of_mut(&mut self.steps)));
    }
}
