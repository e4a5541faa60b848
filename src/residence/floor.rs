//! The fewest copies that any order of the blocks' turns must make.

use super::Offload;

/// Copies of one block's weights in forward and backward of a step, and of its gradients in backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub forward_to_device: usize,
    pub backward_to_device: usize,
    pub gradients_to_device: usize,
    pub gradients_to_host: usize,
}

impl Offload {
    /// Of a step over `layers` blocks in `micro_batches`. Where a pass turns round, as many blocks as
    /// there are slots are there already; after an update (`updates`) what they held is stale. Sums of
    /// gradients come back for each micro-batch but the first.
    pub fn fewest_copies(&self, layers: usize, micro_batches: usize, updates: bool) -> Copies {
        let kept = self.buffers().min(layers);
        Copies {
            forward_to_device: micro_batches * (layers - kept) + if updates { kept } else { 0 },
            backward_to_device: micro_batches * (layers - kept),
            gradients_to_device: (micro_batches - 1) * layers,
            gradients_to_host: micro_batches * layers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Overlap, Strategy};
    use super::*;

    #[test]
    fn copies_of_three_slots_by_hand() {
        let offload = Offload::of(Strategy::Overlap(Overlap::default()));
        let copies = |micro_batches, updates| {
            let Copies { forward_to_device, backward_to_device, gradients_to_device, gradients_to_host } =
                offload.fewest_copies(28, micro_batches, updates);
            [forward_to_device, backward_to_device, gradients_to_device, gradients_to_host]
        };
        assert_eq!(copies(1, false), [25, 25, 0, 28]);
        assert_eq!(copies(1, true), [28, 25, 0, 28]);
        assert_eq!(copies(2, false), [50, 50, 28, 56]);
    }
}
