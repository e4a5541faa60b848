//! [`Engine`]: which block is in which slot, and when it is copied.
//!
//! One block has its turn at a time, between [`enter`](Engine::enter) and [`leave`](Engine::leave).
//! Weights move through as many slots as the strategy has buffers, gradients through two more. A resident block
//! has a slot of its own, which is filled again only where its update is on the host.

mod host_updates;
mod slots;
mod updates;

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{Device, Tensor};

use super::Movement;
use super::activations::{Activations, Input};
use super::layout::{Layout, Part};
use super::turns::Turns;
use crate::device::trace::Mark;
use crate::device::{BlockStore, Side, StoreSize};
use crate::optim::host::Work;
use crate::optim::{Optimizer, OptimizerConfig, squares};
pub use slots::{GRADIENT_SLOTS, Slots};
use updates::Updates;

/// The direction in which blocks take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Backward,
    /// Forward, which the next forward follows.
    Inference,
}

impl Pass {
    /// The block `ahead` turns after `block`, of `count`.
    fn next(self, block: usize, ahead: usize, count: usize) -> Option<usize> {
        match self {
            Self::Forward => Some(block + ahead).filter(|next| *next < count),
            Self::Backward => block.checked_sub(ahead),
            Self::Inference => Some((block + ahead) % count).filter(|_| ahead < count),
        }
    }

    /// Turns from that of `block` to that of `other`, of `count`; `None` where that was before.
    fn turns(self, block: usize, other: usize, count: usize) -> Option<usize> {
        match self {
            Self::Forward => other.checked_sub(block),
            Self::Backward => block.checked_sub(other),
            Self::Inference => Some((other + count - block) % count),
        }
    }
}

pub struct Engine {
    store: Box<dyn BlockStore>,
    /// By block.
    layouts: Vec<Arc<Layout>>,
    size: StoreSize,
    movement: Arc<dyn Movement>,
    /// Of the slots, on autodiff or not.
    device: Device,
    /// What the name of a block's parameter begins with, before the block's number: `model.layers`.
    prefix: &'static str,
    /// Of inputs that wait on the host for backward.
    pub activations: Option<Activations>,
    slots: Slots,
    turn: Option<(usize, usize)>,
    /// By block: whether its gradients are those of this step, to which more are added.
    summed: Vec<bool>,
    /// By block, the sum of its squared gradients; empty unless they are wanted.
    squares: Vec<Option<Tensor<1>>>,
    wants_squares: bool,
    /// One each: an update needs no more, since optimizers work element by element.
    ids: Vec<ParamId>,
    updates: Updates,
}

impl Engine {
    pub fn new(
        store: Box<dyn BlockStore>,
        layouts: Vec<Arc<Layout>>,
        (size, slots): (StoreSize, Slots),
        movement: Arc<dyn Movement>,
        device: Device,
        prefix: &'static str,
    ) -> Self {
        let count = layouts.len();
        Self {
            store,
            layouts,
            movement,
            device,
            prefix,
            activations: None,
            slots,
            turn: None,
            summed: vec![false; count],
            squares: vec![None; count],
            wants_squares: false,
            ids: (0..count).map(|_| ParamId::new()).collect(),
            updates: Updates::Nobody,
            size,
        }
    }

    /// Fills the slot that a block takes while `current` has its turn.
    fn load(&mut self, block: usize, current: usize, pass: Pass) -> usize {
        let slot = self.slots.take(block, current, pass);
        self.fill(slot, Side::Weights, block, self.size.elements);
        slot
    }

    fn release(&mut self, slot: usize) {
        self.slots.empty(slot);
        self.store.clear(slot);
    }

    /// Brings the first elements of a block's buffer.
    fn fill(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        self.expect(side, block);
        self.store.fill(slot, side, block, elements);
    }

    /// Sends what changes: trainable parameters or their gradients.
    fn send(&mut self, slot: usize, side: Side, block: usize) {
        self.collect(block);
        self.store.send(slot, side, block, self.layouts[block].trainable_elements());
    }
}

impl Turns for Engine {
    fn begin(&mut self, config: &OptimizerConfig, optimizer: &Optimizer, wants_squares: bool) {
        self.begin_updates(config, optimizer, wants_squares);
    }

    /// Brings a block into a slot, and issues the copies of those that come ahead of their turn. Gives the
    /// block's parameters: views of the slot, outside of autodiff.
    fn enter(&mut self, block: usize, pass: Pass) -> Vec<DispatchTensor> {
        assert!(self.turn.is_none(), "block {block} comes while {:?} has its turn", self.turn);
        if self.movement.host_waits() {
            // What came before, a head or an embedding, hides no copy either.
            self.store.wait();
        }
        let slot = self.slots.of(block).unwrap_or_else(|| self.load(block, block, pass));
        self.turn = Some((block, slot));
        if let Some(ahead) = self.movement.ahead(self.slots.moving()) {
            for next in self.slots.missing(block, pass, ahead) {
                self.load(next, block, pass);
            }
        }
        if self.movement.host_waits() {
            self.store.wait();
        }
        self.store.filled(slot);
        self.store.mark(Mark::TurnBegins);
        self.layouts[block].parts.iter().map(|part| self.store.view(slot, part.first, &part.shape)).collect()
    }

    /// Ends a block's turn. Where none is copied ahead, one that moves is on the host alone again.
    fn leave(&mut self, block: usize) {
        let (turn, slot) = self.turn.take().expect("a block that leaves has entered");
        assert_eq!(turn, block, "the block whose turn it is leaves");
        self.store.used(slot);
        self.store.mark(Mark::TurnEnds);
        if self.movement.host_waits() {
            self.store.wait();
        }
        if self.movement.ahead(self.slots.moving()).is_none() {
            if !self.slots.is_resident(block) {
                self.release(slot);
            }
            assert!(self.slots.are_empty(), "all blocks that move are on the host");
        }
    }

    /// Takes the gradients of the block whose turn it is, of its trainable parameters in the layout's order, added
    /// to those of earlier micro-batches, and sends them to the host. Where they stay with a resident block, they
    /// are sent once, for an update on the host.
    fn take_gradients(&mut self, block: usize, gradients: Vec<DispatchTensor>) {
        assert_eq!(self.turn.map(|(turn, _)| turn), Some(block), "gradients come during a block's turn");
        if gradients.is_empty() {
            return;
        }
        let (slot, stay) = (self.slots.for_gradients(block), self.slots.kept_gradients(block).is_some());
        let layout = self.layouts[block].clone();
        let parts = &layout.parts[..gradients.len()];
        let placed = parts.iter().map(|part| part.first).zip(gradients.iter().cloned()).collect();
        if std::mem::replace(&mut self.summed[block], true) {
            if !stay {
                self.fill(slot, Side::Gradients, block, self.layouts[block].trainable_elements());
            }
            self.store.filled(slot);
            drop(gradients);
            self.store.add(slot, placed);
            if self.wants_squares {
                let sum = |part: &Part| self.store.view(slot, part.first, &part.shape);
                self.squares[block] = Some(squares(parts.iter().map(sum).collect()));
            }
        } else {
            self.squares[block] = self.wants_squares.then(|| squares(gradients));
            self.store.write(slot, placed);
        }
        if !stay || self.updates_on_arrival() {
            self.send(slot, Side::Gradients, block);
        }
        if self.movement.host_waits() {
            self.store.wait();
        }
        if let Updates::OnHost(updates) = &mut self.updates {
            updates.arriving(&mut *self.store, block, self.ids[block]);
        }
    }

    fn layout(&self, block: usize) -> &Arc<Layout> {
        &self.layouts[block]
    }

    /// The full name of a block's parameter.
    fn name(&self, block: usize, part: usize) -> String {
        format!("{}.{block}.{}", self.prefix, self.layouts[block].parts[part].name)
    }

    /// Makes the buffers that inputs of up to `elements` elements wait in, where they wait on the host.
    ///
    /// # Panics
    /// When the host or the device has not enough memory.
    fn make_room(&mut self, elements: usize) {
        let dtype = self.size.dtype;
        self.activations.iter_mut().for_each(|activations| activations.make_room(elements, dtype));
    }

    /// Keeps a block's input for backward.
    fn keep(&mut self, block: usize, x: Tensor<2>) -> Input {
        match &mut self.activations {
            None => Input::OnDevice(Box::new(x)),
            Some(activations) => Input::OnHost(activations.keep(block, x)),
        }
    }

    /// An input that was kept, to be read until the block's activations are released.
    fn restore(&mut self, block: usize, input: Input) -> Tensor<2> {
        match (input, &mut self.activations) {
            (Input::OnHost(ticket), Some(activations)) => activations.restore(block, ticket),
            (Input::OnHost(_), None) => unreachable!("kept by the same blocks"),
            (Input::OnDevice(x), _) => *x,
        }
    }

    /// What it leaves in the place of weights is lost.
    fn discard(&mut self) {
        self.forget();
    }

    fn movement(&self) -> Arc<dyn Movement> {
        self.movement.clone()
    }

    fn follow(&mut self, movement: Arc<dyn Movement>) {
        self.movement = movement;
    }

    fn update_on_arrival(&mut self, work: Work) {
        self.begin_on_arrival(work);
    }

    fn release_input(&mut self, block: usize) {
        self.activations.iter_mut().for_each(|activations| activations.release(block));
    }
}
