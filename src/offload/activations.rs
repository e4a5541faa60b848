//! [`Activations`]: the inputs of blocks, which wait on the host for backward.
//!
//! An input leaves through one of two slots on the device behind the computation, and comes back through
//! two others: one is read while the next is filled. A buffer holds one input at a time, so a forward
//! whose gradients are wanted is followed by its backward.

use burn::tensor::{DType, Tensor};

use super::config::{Placement, Strategy};
use crate::device::{BlockStore, Side, StoreSize};

/// Slots for inputs on their way in each direction.
pub const SLOTS: usize = 2;

/// Names an input that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

pub struct Activations {
    placement: Placement,
    count: usize,
    /// Made for the first input, whose shape and type are those of all.
    store: Option<Kept>,
    /// Given so far.
    tickets: u64,
}

/// Inputs of one shape.
struct Kept {
    store: Box<dyn BlockStore>,
    shape: [usize; 2],
    dtype: DType,
    /// By block: whose input its buffer holds.
    tickets: Vec<Option<Ticket>>,
    sent: usize,
    /// By slot for inputs that come: the block it holds or is being filled with.
    coming: [Option<usize>; SLOTS],
}

impl Activations {
    pub fn new(placement: Placement, count: usize) -> Self {
        Self { placement, count, store: None, tickets: 0 }
    }

    /// Sends a block's input, [tokens, hidden_size], to the host.
    ///
    /// # Panics
    /// When the host or the device has not enough memory.
    pub fn keep(&mut self, block: usize, x: Tensor<2>) -> Ticket {
        let Self { placement, count, store, tickets } = self;
        let (shape, dtype) = (x.dims(), x.dtype());
        if store.as_ref().is_none_or(|kept| (kept.shape, kept.dtype) != (shape, dtype)) {
            // The memory of the old ones is free first.
            *store = None;
        }
        let kept = store.get_or_insert_with(|| Kept::new(*placement, *count, shape, dtype));
        *tickets += 1;
        let ticket = Ticket(*tickets);
        kept.keep(block, x, ticket);
        if block + 1 == *count && placement.offload.strategy == Strategy::Overlap {
            // Backward begins with it.
            kept.fill(block);
        }
        self.wait();
        ticket
    }

    /// The input that a ticket names: a view of a slot, to be read until [`release`](Self::release).
    ///
    /// # Panics
    /// When a later forward has replaced it.
    pub fn restore(&mut self, block: usize, ticket: Ticket) -> Tensor<2> {
        let overlap = self.placement.offload.strategy == Strategy::Overlap;
        let kept = self.store.as_mut().expect("inputs were kept");
        assert_eq!(kept.tickets[block], Some(ticket), "a forward is followed by its backward");
        kept.fill(block);
        if overlap && let Some(next) = block.checked_sub(1) {
            kept.fill(next);
        }
        let view = kept.view(block);
        self.wait();
        view
    }

    /// A block's input is no longer read.
    pub fn release(&mut self, block: usize) {
        self.store.as_mut().expect("inputs were kept").release(block);
    }

    /// What is computed from now on comes after all copies issued so far.
    pub fn settle(&mut self) {
        if let Some(kept) = &mut self.store {
            kept.store.settle();
        }
    }

    fn wait(&mut self) {
        if let Some(kept) = self.store.as_mut().filter(|_| self.placement.offload.strategy.host_waits()) {
            kept.store.wait();
        }
    }
}

impl Kept {
    fn new(placement: Placement, count: usize, shape: [usize; 2], dtype: DType) -> Self {
        let elements = shape.iter().product();
        let size = StoreSize { blocks: count, elements, dtype, slots: 2 * SLOTS, gradients: false };
        let store = placement.device.block_store(size).unwrap_or_else(|e| panic!("{e}"));
        Self { store, shape, dtype, tickets: vec![None; count], sent: 0, coming: [None; SLOTS] }
    }

    fn keep(&mut self, block: usize, x: Tensor<2>, ticket: Ticket) {
        // What an earlier forward without a backward left there is stale.
        self.forget(block);
        self.sent += 1;
        let slot = SLOTS + self.sent % SLOTS;
        self.store.write(slot, 0, x.into_dispatch());
        self.store.send(slot, Side::Weights, block);
        self.tickets[block] = Some(ticket);
    }

    /// Begins to bring a block's input in, unless it is there or on its way.
    fn fill(&mut self, block: usize) {
        if self.slot(block).is_some() {
            return;
        }
        let free = self.slot_with(None).expect("one input is read and one comes");
        self.store.fill(free, Side::Weights, block);
        self.coming[free] = Some(block);
    }

    fn view(&mut self, block: usize) -> Tensor<2> {
        let slot = self.slot(block).expect("it was filled");
        self.store.filled(slot);
        Tensor::from_dispatch(self.store.view(slot, 0, &self.shape))
    }

    fn release(&mut self, block: usize) {
        self.tickets[block] = None;
        self.forget(block);
    }

    fn forget(&mut self, block: usize) {
        if let Some(slot) = self.slot(block) {
            self.coming[slot] = None;
            self.store.used(slot);
            self.store.clear(slot);
        }
    }

    fn slot(&self, block: usize) -> Option<usize> {
        self.slot_with(Some(block))
    }

    fn slot_with(&self, held: Option<usize>) -> Option<usize> {
        self.coming.iter().position(|coming| *coming == held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceId;
    use crate::offload::{Memory, Offload};

    fn activations(strategy: Strategy) -> Activations {
        let offload = Offload { activations: Memory::Host, ..Offload::of(strategy) };
        Activations::new(Placement { offload, device: DeviceId::Cpu, accumulates: true }, 4)
    }

    fn input(block: usize, graph: usize) -> Tensor<2> {
        Tensor::full([3, 2], (10 * graph + block) as f64, &DeviceId::Cpu.burn())
    }

    /// Two forwards, each with its backward, and one between them whose graph is dropped.
    #[test]
    fn every_input_comes_back_as_it_left() {
        for strategy in [Strategy::Naive, Strategy::Function, Strategy::Overlap] {
            let mut activations = activations(strategy);
            for graph in 0..3 {
                let tickets: Vec<_> = (0..4).map(|i| activations.keep(i, input(i, graph))).collect();
                if graph == 1 {
                    continue;
                }
                for block in (0..4).rev() {
                    let x = activations.restore(block, tickets[block]);
                    assert_eq!(x.into_data(), input(block, graph).into_data(), "{strategy:?} {block}");
                    activations.release(block);
                    let held = activations.store.as_ref().unwrap().coming.iter().flatten().count();
                    assert_eq!(held, usize::from(strategy == Strategy::Overlap && block > 0));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "a forward is followed by its backward")]
    fn an_input_that_was_replaced_is_not_handed_out() {
        let mut activations = activations(Strategy::Overlap);
        let first = activations.keep(3, input(3, 0));
        activations.keep(3, input(3, 1));
        activations.restore(3, first);
    }
}
