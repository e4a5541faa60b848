//! The fewest copies that a step over blocks must make, in any order.

use super::{Memory, Offload};

/// How much of each block an update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    Nothing,
    Part,
    Whole,
}

/// Copies in a step, in blocks: of weights in forward and in backward, and of gradients in backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub forward_to_device: usize,
    pub backward_to_device: usize,
    pub gradients_to_device: usize,
    pub gradients_to_host: usize,
}

impl Offload {
    /// The copies of a step over `layers` blocks in `micro_batches`. Where forward turns into backward, and back, as many
    /// blocks as there are slots are already there. After an update these are stale, unless it is on the device and
    /// changes only a part of each block. Sums of gradients come back for each micro-batch but the first. Resident blocks
    /// cross once for an update on the host; their gradients also cross if nothing keeps them.
    pub fn fewest_copies(&self, layers: usize, micro_batches: usize, updated: Updated) -> Copies {
        let resident = self.resident_blocks.count(layers);
        let moving = layers - resident;
        let kept = self.buffers().min(moving);
        let updates = updated != Updated::Nothing;
        let on_host = updates && self.optimizer == Memory::Host;
        let stale = self.is_stale_after(updated);
        let leave = on_host || !self.keeps_gradients(micro_batches > 1, updates);
        let crossing = |crosses: bool, blocks: usize| if crosses { blocks } else { 0 };
        Copies {
            forward_to_device: micro_batches * (moving - kept)
                + crossing(stale, kept)
                + crossing(on_host, resident),
            backward_to_device: micro_batches * (moving - kept),
            gradients_to_device: (micro_batches - 1) * moving,
            gradients_to_host: micro_batches * moving + crossing(leave, resident),
        }
    }

    /// Whether an update leaves slots with weights of before: not where it is on the device and changes a part of each block,
    /// which it also writes into the slots.
    pub fn is_stale_after(&self, updated: Updated) -> bool {
        match updated {
            Updated::Nothing => false,
            Updated::Part => self.optimizer == Memory::Host,
            Updated::Whole => true,
        }
    }

    /// The copies of weights in a forward that follows another: all slots but one can keep their blocks.
    pub fn fewest_copies_of_a_forward(&self, layers: usize) -> usize {
        let moving = layers - self.resident_blocks.count(layers);
        match self.buffers().min(moving) {
            kept if kept == moving => 0,
            kept => moving + 1 - kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::strategy::Naive;
    use super::super::{Overlap, ResidentBlocks, Strategy};
    use super::*;

    #[test]
    fn copies_of_three_slots_by_hand() {
        let offload = Offload::of(Strategy::Overlap(Overlap::default()));
        let copies = |micro_batches, updated| {
            let Copies { forward_to_device, backward_to_device, gradients_to_device, gradients_to_host } =
                offload.fewest_copies(28, micro_batches, updated);
            [forward_to_device, backward_to_device, gradients_to_device, gradients_to_host]
        };
        assert_eq!(copies(1, Updated::Nothing), [25, 25, 0, 28]);
        assert_eq!(copies(1, Updated::Part), [25, 25, 0, 28]);
        assert_eq!(copies(1, Updated::Whole), [28, 25, 0, 28]);
        assert_eq!(copies(2, Updated::Nothing), [50, 50, 28, 56]);
    }

    #[test]
    fn copies_of_a_forward_by_hand() {
        let copies = |resident: usize, layers| {
            let resident_blocks = ResidentBlocks::Count(resident);
            let overlap = Strategy::Overlap(Overlap { buffers: 3 });
            Offload { resident_blocks, ..Offload::of(overlap) }.fewest_copies_of_a_forward(layers)
        };
        // With two in their slots the others go through the third.
        assert_eq!(
            [copies(0, 28), copies(4, 28), copies(0, 4), copies(1, 4), copies(4, 4)],
            [26, 22, 2, 0, 0]
        );
        assert_eq!(Offload::of(Strategy::Naive(Naive {})).fewest_copies_of_a_forward(28), 28);
    }

    /// Of 28 blocks 24 move.
    #[test]
    fn copies_of_four_resident_blocks_by_hand() {
        let copies = |optimizer, micro_batches, updated| {
            let resident_blocks = ResidentBlocks::Count(4);
            let offload =
                Offload { resident_blocks, optimizer, ..Offload::of(Strategy::Overlap(Overlap::default())) };
            let Copies { forward_to_device, backward_to_device, gradients_to_device, gradients_to_host } =
                offload.fewest_copies(28, micro_batches, updated);
            [forward_to_device, backward_to_device + gradients_to_device, gradients_to_host]
        };
        // Without an update gradients go to the host, unless they are added up.
        assert_eq!(copies(Memory::Device, 1, Updated::Nothing), [21, 21, 28]);
        assert_eq!(copies(Memory::Device, 2, Updated::Nothing), [42, 66, 48]);
        // With one on the device they stay; for one on the host they cross once, and the weights with them.
        assert_eq!(copies(Memory::Device, 1, Updated::Whole), [24, 21, 24]);
        assert_eq!(copies(Memory::Host, 1, Updated::Whole), [28, 21, 28]);
        assert_eq!(copies(Memory::Host, 1, Updated::Part), [28, 21, 28]);
        assert_eq!(copies(Memory::Host, 2, Updated::Whole), [49, 66, 52]);
    }
}
