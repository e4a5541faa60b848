//! The cost of blocks that move: slots on the device, buffers on the host.

use super::activations::SLOTS as ACTIVATION_SLOTS;
use super::config::{Memory, Offload, StatePlace};
use super::engine::GRADIENT_SLOTS;
use crate::common::DeviceId;
use crate::ops::cost::{Cost, KeptBy, Moment};

/// The sizes that determine the cost.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Number of all blocks, and of the resident ones.
    pub blocks: u64,
    pub resident: u64,
    /// Bytes of the parameters of one block.
    pub weights: u64,
    /// Elements of the trained parameters of one block, and of those outside of blocks.
    pub trained: u64,
    pub others: u64,
    /// Bytes of a block's input.
    pub input: u64,
    /// Bytes of a stored element.
    pub stored: u64,
    /// Whether gradients of several micro-batches are added up.
    pub accumulates: bool,
    /// Whether weights are updated.
    pub updates: bool,
    /// Bytes of the optimizer's state, apart from master weights.
    pub state: u64,
    /// Whether backward computes resident blocks again.
    pub recomputes: bool,
}

impl Moved {
    fn moving(&self) -> u64 {
        self.blocks - self.resident
    }

    /// Bytes of the gradients of a block.
    fn gradients(&self) -> u64 {
        self.trained * self.stored
    }

    /// Number of blocks that keep only their input for backward.
    fn inputs(&self) -> u64 {
        if self.recomputes { self.blocks } else { self.moving() }
    }
}

impl Offload {
    /// The cost of a block that moves: its weights and gradients are in slots or on the host.
    pub fn moving_block(&self, block: Cost, device: DeviceId) -> Cost {
        Cost {
            weights: 0,
            gradients: 0,
            holds_input: self.activations == Memory::Device,
            backward: leaving(&block, 2, device),
            ..block
        }
    }

    /// The cost of a resident block: its weights are in a slot of its own.
    pub fn resident_block(&self, block: Cost, moved: &Moved, device: DeviceId) -> Cost {
        let on_host = self.activations == Memory::Host;
        // If gradient slots hold memory all the time, they are counted there.
        let counted = self.kept_gradients(moved, device) > 0;
        let stay = self.keeps_gradients(moved.accumulates, moved.updates) && !counted;
        // Its graph also holds the result, which otherwise is the next block's input on the device.
        let result = if !moved.recomputes && on_host { block.output } else { 0 };
        Cost {
            weights: moved.weights,
            gradients: if stay { block.gradients } else { 0 },
            holds_input: !moved.recomputes || !on_host,
            kept: block.kept + result,
            kept_by: block.kept_by + KeptBy::of(None, result),
            backward: leaving(&block, if counted { 1 } else { 2 }, device),
            ..block
        }
    }

    /// Bytes that the gradient slots of resident blocks hold all the time, also before backward.
    pub fn kept_gradients(&self, moved: &Moved, device: DeviceId) -> u64 {
        let stay = self.moves() && self.keeps_gradients(moved.accumulates, moved.updates);
        // On the CPU a slot takes memory only while it holds something: with several micro-batches, always.
        let always = moved.accumulates || device != DeviceId::Cpu;
        if stay && always { moved.resident * moved.gradients() } else { 0 }
    }

    /// Bytes of the slots that hold memory all the time.
    pub fn slot_bytes(&self, moved: &Moved, device: DeviceId) -> SlotBytes {
        let Some(movement) = self.strategy.movement() else { return SlotBytes::default() };
        let inputs = match (self.activations, device) {
            _ if moved.inputs() == 0 => 0,
            (Memory::Device, _) => 0,
            (Memory::Host, DeviceId::Cuda(_)) => 2 * ACTIVATION_SLOTS as u64,
            // One is read; if blocks are copied ahead, the next is also there.
            (Memory::Host, DeviceId::Cpu) => 1 + u64::from(movement.ahead(ACTIVATION_SLOTS).is_some()),
        };
        let leave = moved.moving() > 0 || !self.keeps_gradients(moved.accumulates, moved.updates);
        let gradients = match device {
            DeviceId::Cuda(_) if leave => GRADIENT_SLOTS as u64,
            DeviceId::Cpu | DeviceId::Cuda(_) => 0,
        };
        let weights = moved.moving().min(movement.buffers() as u64);
        SlotBytes {
            weights: weights * moved.weights,
            gradients: gradients * moved.gradients(),
            inputs: inputs * moved.input,
        }
    }

    /// Bytes that slots take only in an update on the device. On the CPU these are the slots through which gradients and the
    /// trained part of an otherwise frozen block pass, and the copy of a slot that holds such a block and is written.
    pub fn slot_bytes_of_an_update(&self, moved: &Moved, device: DeviceId) -> u64 {
        let Some(movement) = self.strategy.movement().filter(|_| device == DeviceId::Cpu) else { return 0 };
        let gradients = if moved.moving() > 0 { moved.gradients() } else { 0 };
        match gradients < moved.weights {
            true if movement.ahead(1).is_some() && gradients > 0 => 2 * gradients + moved.weights,
            true => 2 * gradients,
            false => gradients,
        }
    }

    /// The same for inference, and the bytes of a slot that holds memory only during its block's turn: on the CPU, unless
    /// blocks are copied ahead.
    pub fn slot_bytes_of_a_forward(&self, moved: &Moved, device: DeviceId) -> (SlotBytes, u64) {
        let all = self.slot_bytes(moved, device);
        let ahead = self.strategy.movement().is_some_and(|movement| movement.ahead(1).is_some());
        match device == DeviceId::Cpu && !ahead {
            true => (SlotBytes::default(), all.weights),
            false => (all, 0),
        }
    }

    /// Bytes on the host instead of on the device.
    pub fn host_bytes(&self, moved: &Moved) -> HostBytes {
        let &Moved { blocks, resident, trained, others, input, stored, accumulates, updates, state, .. } =
            moved;
        let in_blocks = if self.moves() { blocks * trained } else { 0 };
        let buffers = match self.moves() {
            true => {
                let own =
                    if trained > 0 && self.resident_buffers(accumulates, updates) { resident } else { 0 };
                let separate = u64::from(self.separate_gradients(accumulates));
                (moved.moving() + own) * moved.weights + moved.moving() * separate * moved.gradients()
            }
            false => 0,
        };
        let inputs = if self.activations == Memory::Host { moved.inputs() * input } else { 0 };
        let all = blocks * trained + others;
        // fp32 master weights and the rule's state. Parameters outside of blocks cross in their own buffers.
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

/// Bytes of slots on the device: of weights, of gradients, and of the inputs of blocks.
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
    /// Buffers in which parameters outside of moving blocks cross to an optimizer on the host and back.
    pub crossing: u64,
    /// Master weights and state of such an optimizer.
    pub masters: u64,
    pub state: u64,
    /// The same in files, which take none of the host's memory.
    pub disk: u64,
}

impl HostBytes {
    /// Bytes that a GPU copies to and from: the system must not move them.
    pub fn page_locked(&self) -> u64 {
        self.blocks + self.inputs + self.crossing
    }

    pub fn total(&self) -> u64 {
        self.page_locked() + self.masters + self.state
    }
}

/// The highest moment of a block's backward, or of moving its gradients into a slot. On the CPU that moment holds the
/// gradients and `times` slots: each parameter's gradient is put into a copy of the slot.
fn leaving(block: &Cost, times: u64, device: DeviceId) -> Moment {
    let slots = Moment::workspace(match device {
        DeviceId::Cpu => times * block.gradients,
        DeviceId::Cuda(_) => 0,
    });
    Moment::highest([block.backward, Moment::gradients(block.gradients) + slots])
}
