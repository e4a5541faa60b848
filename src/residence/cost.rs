//! What blocks that move cost: slots on the device, buffers on the host.

use super::activations::SLOTS as ACTIVATION_SLOTS;
use super::config::{Memory, Offload};
use super::engine::GRADIENT_SLOTS;
use crate::ops::cost::{Cost, Moment};
use crate::words::DeviceId;

/// The sizes that decide it.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub blocks: u64,
    /// Numbers in the parameters of one block, those of them that are trained, and in the trained ones outside of blocks.
    pub parameters: u64,
    pub trained: u64,
    pub others: u64,
    /// Bytes of a block's input.
    pub input: u64,
    /// Bytes of a number as it is stored.
    pub stored: u64,
    /// Whether gradients of several micro-batches are added up.
    pub accumulates: bool,
}

impl Offload {
    /// One of the blocks: its weights and gradients are in slots or on the host.
    pub fn block(&self, block: Cost, device: DeviceId) -> Cost {
        // On the CPU a slot takes memory while it holds something: the block's gradients, and the slot's once
        // more as each parameter's is put into it.
        let slots = Moment::workspace(match device {
            DeviceId::Cpu => 2 * block.gradients,
            DeviceId::Cuda(_) => 0,
        });
        let leaving = Moment::gradients(block.gradients) + slots;
        Cost {
            weights: 0,
            gradients: 0,
            holds_input: self.activations == Memory::Device,
            backward: Moment::highest([block.backward, leaving]),
            ..block
        }
    }

    /// Bytes of slots that hold memory all the time: of weights, of gradients, and of the inputs of blocks.
    pub fn slot_bytes(&self, moved: &Moved, device: DeviceId) -> u64 {
        let Some(movement) = self.strategy.movement() else { return 0 };
        let inputs = match (self.activations, device) {
            (Memory::Device, _) => 0,
            (Memory::Host, DeviceId::Cuda(_)) => 2 * ACTIVATION_SLOTS as u64,
            // One is read; where blocks are copied ahead the next is there too.
            (Memory::Host, DeviceId::Cpu) => 1 + u64::from(movement.ahead(ACTIVATION_SLOTS).is_some()),
        };
        let gradient_slots = match device {
            DeviceId::Cpu => 0,
            DeviceId::Cuda(_) => GRADIENT_SLOTS,
        };
        let slots = movement.buffers() as u64 * moved.parameters + gradient_slots as u64 * moved.trained;
        slots * moved.stored + inputs * moved.input
    }

    /// Bytes on the host: the buffers of blocks and of their inputs, and what an optimizer has there.
    pub fn host_bytes(&self, moved: &Moved) -> u64 {
        let &Moved { blocks, parameters, trained, others, input, stored, accumulates } = moved;
        let (moving, gradients) = if self.moves() { (blocks * parameters, blocks * trained) } else { (0, 0) };
        let separate = u64::from(self.separate_gradients(accumulates));
        let buffers = (moving + gradients * separate) * stored;
        let inputs = if self.activations == Memory::Host { blocks * input } else { 0 };
        let all = blocks * trained + others;
        let optimizer = match self.optimizer {
            Memory::Device => 0,
            // fp32 master weights and moments; what is not in blocks crosses in buffers of its own.
            Memory::Host => all * 3 * 4 + (all - gradients) * stored,
        };
        buffers + inputs + optimizer
    }
}
