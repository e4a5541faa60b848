//! [`Engine`]: which block is in which slot, and when it is copied.
//!
//! One block has its turn at a time, between [`enter`](Engine::enter) and [`leave`](Engine::leave). Weights move through as
//! many slots as the strategy has buffers, and gradients through two more. A resident block has its own slot, which is
//! filled again only if its update is on the host.

mod filled;
mod host_updates;
mod pass;
mod slots;
mod updates;

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{Device, Tensor};

use super::activations::{Activations, Input};
use super::layout::{Layout, Part, block_id};
use super::names::BlockNames;
use super::turns::{SlotState, Turns};
use super::{Movement, ParameterStore};
use crate::device::trace::Mark;
use crate::device::{BlockStore, Side, StoreSize};
use crate::optim::host::Work;
use crate::optim::{DeviceOptimizer, Optimizer, OptimizerConfig, squares};
use host_updates::HostUpdates;
pub use pass::Pass;
pub use slots::{GRADIENT_SLOTS, Slots};
use updates::Updates;

pub struct Engine {
    store: Box<dyn BlockStore>,
    /// By block.
    layouts: Vec<Arc<Layout>>,
    size: StoreSize,
    movement: Arc<dyn Movement>,
    /// The device of the slots.
    device: Device,
    names: BlockNames,
    /// The inputs that wait on the host for backward.
    pub activations: Option<Activations>,
    slots: Slots,
    turn: Option<(usize, usize)>,
    /// By block: whether it has gradients of this step, to which later ones are added.
    summed: Vec<bool>,
    /// By block: the sum of its squared gradients, if it is wanted.
    squares: Vec<Option<Tensor<1>>>,
    wants_squares: bool,
    /// By block: one id for all its parameters, since optimizers work element by element.
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
        names: BlockNames,
    ) -> Self {
        let count = layouts.len();
        Self {
            store,
            layouts,
            movement,
            device,
            names,
            activations: None,
            slots,
            turn: None,
            summed: vec![false; count],
            squares: vec![None; count],
            wants_squares: false,
            ids: (0..count).map(block_id).collect(),
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

    /// Begins to copy the first elements of a block's buffer into a slot.
    fn fill(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        self.expect(side, block);
        self.store.fill(slot, side, block, elements);
    }

    /// Begins to copy trainable parameters or their gradients to the host.
    fn send(&mut self, slot: usize, side: Side, block: usize) {
        self.collect(block);
        self.store.send(slot, side, block, self.layouts[block].trainable_elements());
    }
}

impl Turns for Engine {
    fn begin(&mut self, config: &OptimizerConfig, optimizer: &Optimizer) {
        self.updates = match (optimizer, config.rule()) {
            (Optimizer::OnHost(host), _) => {
                let trainable = self.layouts.iter().map(|layout| layout.trainable_elements()).collect();
                let mut updates = HostUpdates::new(host.worker.clone(), trainable);
                for block in self.trained() {
                    updates.adopt(&mut *self.store, self.size.dtype, block, self.ids[block]);
                }
                Updates::OnHost(updates)
            }
            (_, Some(rule)) => Updates::OnDevice(Box::new(DeviceOptimizer::new(rule))),
            (_, None) => Updates::Nobody,
        };
    }

    fn want_squares(&mut self, wanted: bool) {
        self.wants_squares = wanted;
    }

    /// The parameters are views of the block's slot.
    fn enter(&mut self, block: usize, pass: Pass) -> Vec<DispatchTensor> {
        assert!(self.turn.is_none(), "block {block} comes while {:?} has its turn", self.turn);
        if self.movement.host_waits() {
            // The head or the embedding before it hides no copy either.
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

    /// If blocks are not copied ahead, one that moves is only on the host again.
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

    /// Sends the sums to the host. If they stay with a resident block, they are sent once, for an update on the host.
    fn take_gradients(&mut self, block: usize, gradients: Vec<DispatchTensor>) {
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

    fn make_room(&mut self, elements: usize) {
        let dtype = self.size.dtype;
        self.activations.iter_mut().for_each(|activations| activations.make_room(elements, dtype));
    }

    fn keep(&mut self, block: usize, x: Tensor<2>) -> Input {
        match &mut self.activations {
            None => Input::OnDevice(Box::new(x)),
            Some(activations) => Input::OnHost(activations.keep(block, x)),
        }
    }

    fn restore(&mut self, block: usize, input: Input) -> Tensor<2> {
        match (input, &mut self.activations) {
            (Input::OnHost(ticket), Some(activations)) => activations.restore(block, ticket),
            (Input::OnHost(_), None) => unreachable!("kept by the same blocks"),
            (Input::OnDevice(x), _) => *x,
        }
    }

    fn discard(&mut self) {
        let blocks = self.take_summed();
        self.forget(&blocks);
    }

    fn movement(&self) -> Arc<dyn Movement> {
        self.movement.clone()
    }

    fn follow(&mut self, movement: Arc<dyn Movement>) {
        self.movement = movement;
    }

    fn update_on_arrival(&mut self, work: Work) {
        if let Updates::OnHost(updates) = &mut self.updates {
            updates.on_arrival = Some(work);
        }
    }

    fn slot_state(&self) -> SlotState {
        let Self { slots, summed, squares, .. } = self;
        SlotState { held: slots.held().to_vec(), summed: summed.clone(), squares: squares.clone() }
    }

    fn return_to(&mut self, SlotState { held, .. }: &SlotState) {
        self.take_summed();
        for (slot, wanted) in held.iter().enumerate() {
            match *wanted {
                same if same == self.slots.held()[slot] => {}
                None => self.release(slot),
                Some(block) => self.fill(slot, Side::Weights, block, self.size.elements),
            }
        }
        self.slots.hold(held);
        self.settle();
    }

    fn fork(&mut self) {
        self.store.fork();
    }

    fn join(&mut self, SlotState { held, summed, squares }: &SlotState) {
        self.slots.hold(held);
        self.summed.clone_from(summed);
        self.squares.clone_from(squares);
        self.store.join();
    }

    fn release_input(&mut self, block: usize) {
        self.activations.iter_mut().for_each(|activations| activations.release(block));
    }
}
