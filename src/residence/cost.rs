//! What blocks that move cost: slots on the device, buffers on the host.

use super::activations::SLOTS as ACTIVATION_SLOTS;
use super::config::{Memory, Offload, StatePlace};
use super::engine::GRADIENT_SLOTS;
use crate::ops::cost::{Cost, KeptBy, Moment};
use crate::words::DeviceId;

/// The sizes that decide it.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// All blocks, and those of them that are resident.
    pub blocks: u64,
    pub resident: u64,
    /// Bytes of the parameters of one block.
    pub weights: u64,
    /// Numbers in those of them that are trained, and in the trained ones outside of blocks.
    pub trained: u64,
    pub others: u64,
    /// Bytes of a block's input.
    pub input: u64,
    /// Bytes of a number as it is stored.
    pub stored: u64,
    /// Whether gradients of several micro-batches are added up.
    pub accumulates: bool,
    /// Whether weights are updated.
    pub updates: bool,
    /// Bytes that the optimizer keeps between steps, apart from master weights.
    pub state: u64,
    /// Whether backward computes resident blocks again.
    pub recomputes: bool,
}

impl Moved {
    fn moving(&self) -> u64 {
        self.blocks - self.resident
    }

    /// Bytes of a block's weights, and of its gradients.
    fn block(&self) -> u64 {
        self.weights
    }

    fn gradients(&self) -> u64 {
        self.trained * self.stored
    }

    /// Blocks whose inputs wait for backward by themselves.
    fn inputs(&self) -> u64 {
        if self.recomputes { self.blocks } else { self.moving() }
    }
}

impl Offload {
    /// One of the blocks that move: its weights and gradients are in slots or on the host.
    pub fn moving_block(&self, block: Cost, device: DeviceId) -> Cost {
        Cost {
            weights: 0,
            gradients: 0,
            holds_input: self.activations == Memory::Device,
            backward: leaving(&block, 2, device),
            ..block
        }
    }

    /// One of the resident blocks, as backward finds it: its weights are in a slot of its own.
    pub fn resident_block(&self, block: Cost, moved: &Moved, device: DeviceId) -> Cost {
        let on_host = self.activations == Memory::Host;
        // Where their slots hold memory all the time, that is counted as such.
        let counted = self.kept_gradients(moved, device) > 0;
        let stay = self.keeps_gradients(moved.accumulates, moved.updates) && !counted;
        // Its graph holds the result too, which else is the next block's input on the device.
        let result = if !moved.recomputes && on_host { block.output } else { 0 };
        Cost {
            weights: moved.block(),
            gradients: if stay { block.gradients } else { 0 },
            holds_input: !moved.recomputes || !on_host,
            kept: block.kept + result,
            kept_by: block.kept_by + KeptBy::of(None, result),
            backward: leaving(&block, if counted { 1 } else { 2 }, device),
            ..block
        }
    }

    /// Bytes in the slots of resident blocks' gradients all the time, also before their backward.
    pub fn kept_gradients(&self, moved: &Moved, device: DeviceId) -> u64 {
        let stay = self.moves() && self.keeps_gradients(moved.accumulates, moved.updates);
        // On the CPU a slot takes memory while it holds something: from the first micro-batch on.
        let always = moved.accumulates || device != DeviceId::Cpu;
        if stay && always { moved.resident * moved.gradients() } else { 0 }
    }

    /// Slots that hold memory all the time.
    pub fn slot_bytes(&self, moved: &Moved, device: DeviceId) -> SlotBytes {
        let Some(movement) = self.strategy.movement() else { return SlotBytes::default() };
        let inputs = match (self.activations, device) {
            _ if moved.inputs() == 0 => 0,
            (Memory::Device, _) => 0,
            (Memory::Host, DeviceId::Cuda(_)) => 2 * ACTIVATION_SLOTS as u64,
            // One is read; where blocks are copied ahead the next is there too.
            (Memory::Host, DeviceId::Cpu) => 1 + u64::from(movement.ahead(ACTIVATION_SLOTS).is_some()),
        };
        let leave = moved.moving() > 0 || !self.keeps_gradients(moved.accumulates, moved.updates);
        let gradients = match device {
            DeviceId::Cuda(_) if leave => GRADIENT_SLOTS as u64,
            DeviceId::Cpu | DeviceId::Cuda(_) => 0,
        };
        let weights = moved.moving().min(movement.buffers() as u64);
        SlotBytes {
            weights: weights * moved.block(),
            gradients: gradients * moved.gradients(),
            inputs: inputs * moved.input,
        }
    }

    /// Bytes that slots take in an update on the device and else not: on the CPU those through which gradients and the
    /// trained part of a block that is otherwise frozen pass, and a slot that holds such a block and is written anew.
    pub fn slot_bytes_of_an_update(&self, moved: &Moved, device: DeviceId) -> u64 {
        let Some(movement) = self.strategy.movement().filter(|_| device == DeviceId::Cpu) else { return 0 };
        let gradients = if moved.moving() > 0 { moved.gradients() } else { 0 };
        match gradients < moved.block() {
            true if movement.ahead(1).is_some() && gradients > 0 => 2 * gradients + moved.block(),
            true => 2 * gradients,
            false => gradients,
        }
    }

    /// The same of a forward alone, and the bytes of a slot that holds memory during its block's turn alone: on the
    /// CPU, where none is copied ahead.
    pub fn slot_bytes_of_a_forward(&self, moved: &Moved, device: DeviceId) -> (SlotBytes, u64) {
        let all = self.slot_bytes(moved, device);
        let ahead = self.strategy.movement().is_some_and(|movement| movement.ahead(1).is_some());
        match device == DeviceId::Cpu && !ahead {
            true => (SlotBytes::default(), all.weights),
            false => (all, 0),
        }
    }

    /// What is on the host instead of on the device.
    pub fn host_bytes(&self, moved: &Moved) -> HostBytes {
        let &Moved { blocks, resident, trained, others, input, stored, accumulates, updates, state, .. } =
            moved;
        let in_blocks = if self.moves() { blocks * trained } else { 0 };
        let buffers = match self.moves() {
            true => {
                let own =
                    if trained > 0 && self.resident_buffers(accumulates, updates) { resident } else { 0 };
                let separate = u64::from(self.separate_gradients(accumulates));
                (moved.moving() + own) * moved.block() + moved.moving() * separate * moved.gradients()
            }
            false => 0,
        };
        let inputs = if self.activations == Memory::Host { moved.inputs() * input } else { 0 };
        let all = blocks * trained + others;
        // fp32 master weights and the rule's state; what is not in blocks crosses in buffers of its own.
        let (masters, state, crossing) = match self.optimizer {
            Memory::Device => (0, 0, 0),
            Memory::Host => (all * 4, state, (all - in_blocks) * stored),
        };
        match self.optimizer_state {
            StatePlace::Memory => HostBytes { blocks: buffers, inputs, crossing, masters, state, disk: 0 },
            StatePlace::Disk => {
                HostBytes { blocks: buffers, inputs, crossing, masters: 0, state: 0, disk: masters + state }
            }
        }
    }
}

/// Bytes on the device through which blocks move: of weights, of gradients, and of the inputs of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotBytes {
    pub weights: u64,
    pub gradients: u64,
    pub inputs: u64,
}

impl SlotBytes {
    pub fn total(&self) -> u64 {
        self.weights + self.gradients + self.inputs
    }
}

/// Bytes on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostBytes {
    /// Buffers of blocks' weights and gradients, and of their inputs.
    pub blocks: u64,
    pub inputs: u64,
    /// Buffers in which what is not in blocks that move goes to an optimizer on the host and comes back.
    pub crossing: u64,
    /// What such an optimizer has: master weights, and its state.
    pub masters: u64,
    pub state: u64,
    /// The same where it is in files: none of the host's memory.
    pub disk: u64,
}

impl HostBytes {
    /// Where a GPU copies to and from, the system must not move these.
    pub fn page_locked(&self) -> u64 {
        self.blocks + self.inputs + self.crossing
    }

    pub fn total(&self) -> u64 {
        self.page_locked() + self.masters + self.state
    }
}

/// The highest moment of a block's backward, or of its gradients' way to a slot. On the CPU that takes memory while
/// it holds something: the gradients, and the slot's once more as each parameter's is put into it, `times` in all.
fn leaving(block: &Cost, times: u64, device: DeviceId) -> Moment {
    let slots = Moment::workspace(match device {
        DeviceId::Cpu => times * block.gradients,
        DeviceId::Cuda(_) => 0,
    });
    Moment::highest([block.backward, Moment::gradients(block.gradients) + slots])
}
