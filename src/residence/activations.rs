//! [`Activations`]: the inputs of blocks, which wait on the host for backward.
//!
//! An input leaves through one of two slots on the device while computation goes on, and comes back through two others: one
//! is read while the next is filled. A buffer holds one input at a time, so a forward whose gradients are wanted must be
//! followed by its backward.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};

use super::Movement;
use super::config::Placement;
use crate::device::{BlockStore, Buffers, Side, StoreSize};

/// Slots for inputs on their way in each direction.
pub const SLOTS: usize = 2;

/// A block's input between forward and backward.
pub enum Input {
    OnDevice(Box<Tensor<2>>),
    OnHost(Ticket),
}

/// Names an input that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

pub struct Activations {
    placement: Placement,
    movement: Arc<dyn Movement>,
    /// The blocks whose inputs wait, in order.
    blocks: Vec<usize>,
    /// Made for the largest input so far.
    store: Option<Kept>,
    /// Number of the last ticket.
    tickets: u64,
}

/// Buffers and slots. An input takes the first elements of a buffer.
struct Kept {
    store: Box<dyn BlockStore>,
    elements: usize,
    dtype: DType,
    /// By place of a block: the input in its buffer, and its shape.
    inputs: Vec<Option<(Ticket, [usize; 2])>>,
    sent: usize,
    /// By slot for returning inputs: the place of the block whose input it holds or is being filled with.
    coming: [Option<usize>; SLOTS],
}

impl Activations {
    /// `blocks`: those whose inputs wait, in order.
    pub fn new(placement: Placement, movement: Arc<dyn Movement>, blocks: Vec<usize>) -> Self {
        Self { placement, movement, blocks, store: None, tickets: 0 }
    }

    /// A block's place among those whose inputs wait.
    fn place(&self, block: usize) -> usize {
        self.blocks.binary_search(&block).expect("the block's input waits here")
    }

    /// Makes buffers for inputs of up to `elements` elements, unless there are some. Call it between steps: locking memory
    /// takes time.
    ///
    /// # Panics
    /// When the host or the device does not have enough memory.
    pub fn make_room(&mut self, elements: usize, dtype: DType) {
        if self.store.as_ref().is_none_or(|kept| kept.dtype != dtype || kept.elements < elements) {
            // Frees the memory of the old ones first.
            self.store = None;
            self.store = Some(Kept::new(self.placement, self.blocks.len(), elements, dtype));
        }
    }

    /// Sends a block's input, [tokens, hidden_size], to the host.
    ///
    /// # Panics
    /// As [`make_room`](Self::make_room), for an input larger than all before.
    pub fn keep(&mut self, block: usize, x: Tensor<2>) -> Ticket {
        self.make_room(x.shape().num_elements(), x.dtype());
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let (place, overlaps) = (self.place(block), self.overlaps());
        let kept = self.store.as_mut().expect("there is room");
        kept.keep(place, x, ticket);
        if place + 1 == self.blocks.len() && overlaps {
            // Backward begins with it.
            kept.fill(place);
        }
        self.wait();
        ticket
    }

    /// The input that a ticket names: a view of a slot, to be read until [`release`](Self::release).
    ///
    /// # Panics
    /// When a later forward has replaced it.
    pub fn restore(&mut self, block: usize, ticket: Ticket) -> Tensor<2> {
        let (place, overlap) = (self.place(block), self.overlaps());
        let kept = self.store.as_mut().expect("inputs were kept");
        let current = kept.inputs[place].map(|(ticket, _)| ticket);
        assert_eq!(current, Some(ticket), "a forward is followed by its backward");
        kept.fill(place);
        if overlap && let Some(next) = place.checked_sub(1) {
            kept.fill(next);
        }
        let view = kept.view(place);
        self.wait();
        view
    }

    /// The input of a block is no longer read.
    pub fn release(&mut self, block: usize) {
        let place = self.place(block);
        self.store.as_mut().expect("inputs were kept").release(place);
    }

    /// Computation from now on comes after all copies issued so far.
    pub fn settle(&mut self) {
        if let Some(kept) = &mut self.store {
            kept.store.settle();
        }
    }

    /// Whether inputs are copied ahead of their turns.
    fn overlaps(&self) -> bool {
        self.movement.ahead(SLOTS).is_some()
    }

    fn wait(&mut self) {
        if let Some(kept) = self.store.as_mut().filter(|_| self.movement.host_waits()) {
            kept.store.wait();
        }
    }
}

impl Kept {
    fn new(placement: Placement, count: usize, elements: usize, dtype: DType) -> Self {
        let (buffers, slots) = (vec![Buffers::One; count], 2 * SLOTS);
        let size = StoreSize { buffers, elements, trainable: 0, dtype, slots, gradient_slots: 0 };
        let store = placement.device.block_store(size).unwrap_or_else(|e| panic!("{e}"));
        Self { store, elements, dtype, inputs: vec![None; count], sent: 0, coming: [None; SLOTS] }
    }

    fn keep(&mut self, place: usize, x: Tensor<2>, ticket: Ticket) {
        // An input of an earlier forward without a backward is stale.
        self.forget(place);
        self.sent += 1;
        let slot = SLOTS + self.sent % SLOTS;
        let shape = x.dims();
        self.store.write(slot, vec![(0, x.into_dispatch())]);
        self.store.send(slot, Side::Weights, place, shape.iter().product());
        self.inputs[place] = Some((ticket, shape));
    }

    /// Begins to copy an input to the device, unless it is there or on its way.
    fn fill(&mut self, place: usize) {
        if self.slot(place).is_some() {
            return;
        }
        let free = self.slot_with(None).expect("one input is read and one comes");
        let elements = self.shape(place).iter().product();
        self.store.fill(free, Side::Weights, place, elements);
        self.coming[free] = Some(place);
    }

    fn view(&mut self, place: usize) -> Tensor<2> {
        let slot = self.slot(place).expect("it was filled");
        self.store.filled(slot);
        Tensor::from_dispatch(self.store.view(slot, 0, &self.shape(place)))
    }

    fn shape(&self, place: usize) -> [usize; 2] {
        self.inputs[place].expect("its input was kept").1
    }

    fn release(&mut self, place: usize) {
        self.inputs[place] = None;
        self.forget(place);
    }

    fn forget(&mut self, place: usize) {
        if let Some(slot) = self.slot(place) {
            self.coming[slot] = None;
            self.store.used(slot);
            self.store.clear(slot);
        }
    }

    fn slot(&self, place: usize) -> Option<usize> {
        self.slot_with(Some(place))
    }

    fn slot_with(&self, held: Option<usize>) -> Option<usize> {
        self.coming.iter().position(|coming| *coming == held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::DeviceId;
    use crate::residence::{Memory, Offload, Overlap, Strategy};

    /// Strategies whose inputs may wait on the host.
    fn strategies() -> impl Iterator<Item = Strategy> {
        Strategy::all().filter(|strategy| strategy.movement().is_some_and(|m| m.input_stays().is_none()))
    }

    fn activations(strategy: Strategy) -> Activations {
        let offload = Offload { activations: Memory::Host, ..Offload::of(strategy) };
        let placement =
            Placement { offload, device: DeviceId::Cpu, accumulates: true, updates: true, recomputes: false };
        Activations::new(placement, strategy.movement().expect("blocks move"), (0..4).collect())
    }

    fn input(block: usize, graph: usize) -> Tensor<2> {
        Tensor::full([3, 2], (10 * graph + block) as f64, &DeviceId::Cpu.burn())
    }

    /// Two forwards with their backwards, and between them a forward whose graph is dropped.
    #[test]
    fn every_input_comes_back_as_it_left() {
        for strategy in strategies() {
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
                    assert_eq!(held, usize::from(activations.overlaps() && block > 0));
                }
            }
        }
    }

    /// Smaller and larger inputs in turn: all use the buffers of the largest.
    #[test]
    fn inputs_of_other_shapes_take_the_same_buffers() {
        for strategy in strategies() {
            let mut activations = activations(strategy);
            activations.make_room(10, DType::F32);
            let buffer = |activations: &mut Activations| {
                activations.store.as_mut().unwrap().store.host(Side::Weights, 2).as_ptr()
            };
            let first = buffer(&mut activations);
            for (graph, rows) in [3, 1, 5, 2, 5].into_iter().enumerate() {
                let input = |block: usize| input(block, graph).repeat_dim(0, 2).narrow(0, 0, rows);
                let tickets: Vec<_> = (0..4).map(|i| activations.keep(i, input(i))).collect();
                for block in (0..4).rev() {
                    let x = activations.restore(block, tickets[block]);
                    assert_eq!(x.into_data(), input(block).into_data(), "{strategy:?} {block}");
                    activations.release(block);
                }
                assert_eq!(buffer(&mut activations), first, "{strategy:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a forward is followed by its backward")]
    fn an_input_that_was_replaced_is_not_handed_out() {
        let mut activations = activations(Strategy::Overlap(Overlap::default()));
        let first = activations.keep(3, input(3, 0));
        activations.keep(3, input(3, 1));
        activations.restore(3, first);
    }
}
