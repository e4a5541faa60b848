//! [`Engine`]: which block is in which slot, and when it is copied.
//!
//! One block has its turn at a time, between [`enter`](Engine::enter) and [`leave`](Engine::leave).
//! Weights pass through as many slots as the strategy has buffers, gradients through two more.

mod host_updates;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor};

use super::config::{Offload, Strategy};
use super::layout::Layout;
use crate::device::trace::Mark;
use crate::device::{BlockStore, Side};
use crate::optim::host::Work;
use crate::optim::{Optimizer, StepSize, squares};
use host_updates::HostUpdates;

/// Slots for gradients: one is computed while the other is sent.
pub const GRADIENT_SLOTS: usize = 2;

/// The direction in which blocks take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Backward,
}

impl Pass {
    /// The block `ahead` turns after `block`, of `count`.
    fn next(self, block: usize, ahead: usize, count: usize) -> Option<usize> {
        match self {
            Self::Forward => Some(block + ahead).filter(|next| *next < count),
            Self::Backward => block.checked_sub(ahead),
        }
    }
}

pub struct Engine {
    store: Box<dyn BlockStore>,
    layout: Layout,
    offload: Offload,
    count: usize,
    dtype: DType,
    /// By slot for weights: the block it holds or is being filled with.
    holds: Vec<Option<usize>>,
    turn: Option<(usize, usize)>,
    /// Gradient slots taken so far.
    gradients_sent: usize,
    /// By block: whether its gradients are those of this step, to which more are added.
    summed: Vec<bool>,
    /// By block, the sum of its squared gradients; empty unless they are wanted.
    squares: Vec<Option<Tensor<1>>>,
    wants_squares: bool,
    /// One each: an update needs no more, since optimizers work element by element.
    ids: Vec<ParamId>,
    /// Of an optimizer on the host.
    updates: Option<HostUpdates>,
    /// Whether gradients have buffers of their own; else they take the place of the weights.
    separate_gradients: bool,
    /// A slot is refilled while its block is still to be computed: for tests of the tests.
    refills_early: bool,
}

impl Engine {
    pub fn new(
        store: Box<dyn BlockStore>,
        layout: Layout,
        count: usize,
        dtype: DType,
        offload: Offload,
        separate_gradients: bool,
    ) -> Self {
        Self {
            dtype,
            store,
            layout,
            offload,
            count,
            holds: vec![None; offload.buffers],
            turn: None,
            gradients_sent: 0,
            summed: vec![false; count],
            squares: vec![None; count],
            wants_squares: false,
            ids: (0..count).map(|_| ParamId::new()).collect(),
            updates: None,
            separate_gradients,
            refills_early: false,
        }
    }

    /// Brings a block into a slot, and under `overlap` issues the copies of those after it. Gives the
    /// block's parameters: views of the slot, outside of autodiff.
    pub fn enter(&mut self, block: usize, pass: Pass) -> Vec<DispatchTensor> {
        assert!(self.turn.is_none(), "block {block} comes while {:?} has its turn", self.turn);
        if self.offload.strategy.host_waits() {
            // What came before, a head or an embedding, hides no copy either.
            self.store.wait();
        }
        let slot = self.slot_of(block).unwrap_or_else(|| self.load(block, block, pass));
        self.turn = Some((block, slot));
        if self.offload.strategy == Strategy::Overlap {
            let count = self.count;
            let ahead = 1..self.offload.buffers + usize::from(self.refills_early);
            for next in ahead.filter_map(|k| pass.next(block, k, count)) {
                if self.slot_of(next).is_none() {
                    self.load(next, block, pass);
                }
            }
        }
        if self.offload.strategy.host_waits() {
            self.store.wait();
        }
        self.store.filled(slot);
        self.store.mark(Mark::TurnBegins);
        let whole = self.holds[slot] == Some(block) || self.refills_early;
        assert!(whole, "block {block} is not in its slot");
        self.layout.parts.iter().map(|part| self.store.view(slot, part.first, &part.shape)).collect()
    }

    /// Ends a block's turn. But for `overlap` it is on the host alone again.
    pub fn leave(&mut self, block: usize) {
        let (turn, slot) = self.turn.take().expect("a block that leaves has entered");
        assert_eq!(turn, block, "the block whose turn it is leaves");
        self.store.used(slot);
        self.store.mark(Mark::TurnEnds);
        if self.offload.strategy.host_waits() {
            self.store.wait();
        }
        if self.offload.strategy != Strategy::Overlap {
            self.release(slot);
            assert!(self.holds.iter().all(Option::is_none), "all blocks are on the host");
        }
    }

    /// Takes the gradients of the block whose turn it is, in the layout's order, and sends them to the
    /// host, added to those of earlier micro-batches.
    pub fn take_gradients(&mut self, block: usize, mut gradients: Vec<DispatchTensor>) {
        assert_eq!(self.turn.map(|(turn, _)| turn), Some(block), "gradients come during a block's turn");
        let slot = self.gradient_slot();
        if std::mem::replace(&mut self.summed[block], true) {
            self.fill(slot, Side::Gradients, block);
            self.store.filled(slot);
            let sums = self.layout.parts.iter().zip(gradients).map(|(part, gradient)| {
                let before = Tensor::<1>::from_dispatch(self.store.view(slot, part.first, &part.shape));
                (before + Tensor::<1>::from_dispatch(gradient)).into_dispatch()
            });
            gradients = sums.collect();
        }
        if self.wants_squares {
            let sum = (!gradients.is_empty()).then(|| squares(gradients.to_vec()));
            self.squares[block] = sum;
        }
        for (part, gradient) in self.layout.parts.iter().zip(gradients) {
            self.store.write(slot, part.first, gradient);
        }
        self.send(slot, Side::Gradients, block);
        if self.offload.strategy.host_waits() {
            self.store.wait();
        }
        if let Some(updates) = &mut self.updates {
            updates.arriving(&mut *self.store, block, self.ids[block]);
        }
    }

    /// Updates every block that has gradients, on the device or on the host, and begins the next step: its first
    /// gradients replace these. The slots are empty after an update: what they held is stale.
    pub fn update(&mut self, optimizer: &mut Optimizer, size: &StepSize) {
        let summed = std::mem::replace(&mut self.summed, vec![false; self.count]);
        self.squares.fill(None);
        if matches!(optimizer, Optimizer::None) {
            return;
        }
        for slot in 0..self.holds.len() {
            self.release(slot);
        }
        let blocks = (0..self.count).filter(|block| summed[*block]);
        if let Some(updates) = &mut self.updates {
            // Reads the norm where gradients are clipped: no update begins before it is known.
            let work = Work::step(size);
            // The gradients of the last block were here first.
            blocks.rev().for_each(|block| updates.update(&mut *self.store, block, self.ids[block], work));
            updates.end_step();
            return;
        }
        for block in blocks {
            let slot = block % self.holds.len();
            let from = self.gradient_slot();
            self.fill(slot, Side::Weights, block);
            self.fill(from, Side::Gradients, block);
            self.store.filled(slot);
            self.store.filled(from);
            let [weights, gradients] = [slot, from]
                .map(|slot| Tensor::from_dispatch(self.store.view(slot, 0, &[self.layout.elements])));
            let updated = optimizer.update(self.ids[block], weights, gradients, size);
            self.store.used(from);
            self.store.clear(from);
            self.store.write(slot, 0, updated.into_dispatch());
            self.send(slot, Side::Weights, block);
            if self.offload.strategy.host_waits() {
                self.store.wait();
            }
        }
    }

    /// Makes the states of all blocks that the device keeps.
    pub fn make_states(&self, optimizer: &mut Optimizer, device: &Device) {
        self.ids.iter().for_each(|id| optimizer.make_state(*id, self.layout.elements, device));
    }

    /// The sum of all blocks' squared gradients, [1] in fp32; `None` where none were wanted or came.
    pub fn squares(&self) -> Option<Tensor<1>> {
        self.squares.iter().flatten().cloned().reduce(|sum, more| sum + more)
    }

    /// Adds up squares from the next gradients on.
    pub fn want_squares(&mut self) {
        self.wants_squares = true;
    }

    /// A block's buffer, arrived on the host.
    pub fn host(&mut self, side: Side, block: usize) -> &mut [u8] {
        self.expect(side, block);
        self.store.host(side, block)
    }

    /// Whether gradients of this step have arrived for a block.
    pub fn has_gradients(&self, block: usize) -> bool {
        self.summed[block]
    }

    /// Forgets the gradients so far.
    pub fn discard_gradients(&mut self) {
        let summed = std::mem::replace(&mut self.summed, vec![false; self.count]);
        self.squares.fill(None);
        if self.separate_gradients {
            return;
        }
        let updates = self.updates.as_mut().expect("an optimizer on the host has the weights");
        for block in (0..self.count).filter(|block| summed[*block]) {
            updates.restore(&mut *self.store, block, self.ids[block]);
        }
    }

    pub fn settle(&mut self) {
        self.store.settle();
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Refills slots whose block is still to be computed, from now on: results are wrong.
    pub fn refill_early(&mut self) {
        self.refills_early = true;
    }

    fn slot_of(&self, block: usize) -> Option<usize> {
        self.holds.iter().position(|held| *held == Some(block))
    }

    /// Fills the slot that is wanted again last, of those that hold none of the blocks from `current`
    /// up to `block`.
    fn load(&mut self, block: usize, current: usize, pass: Pass) -> usize {
        let turns = |held: usize| match pass {
            Pass::Forward => held.checked_sub(current),
            Pass::Backward => current.checked_sub(held),
        };
        let wanted = turns(block).expect("blocks are loaded ahead");
        let free = |held: &Option<usize>| match held.map(turns) {
            Some(Some(turns)) if turns < wanted => self.refills_early && turns == 0,
            _ => true,
        };
        let slots = (0..self.holds.len()).filter(|slot| free(&self.holds[*slot]));
        let slot = slots
            .max_by_key(|slot| self.holds[*slot].map_or(usize::MAX, |held| held.abs_diff(block)))
            .expect("fewer blocks are wanted than there are slots");
        self.fill(slot, Side::Weights, block);
        self.holds[slot] = Some(block);
        slot
    }

    fn release(&mut self, slot: usize) {
        self.holds[slot] = None;
        self.store.clear(slot);
    }

    fn gradient_slot(&mut self) -> usize {
        self.gradients_sent += 1;
        self.offload.buffers + self.gradients_sent % GRADIENT_SLOTS
    }

    fn fill(&mut self, slot: usize, side: Side, block: usize) {
        self.expect(side, block);
        self.store.fill(slot, side, block, self.layout.elements);
    }

    fn send(&mut self, slot: usize, side: Side, block: usize) {
        self.collect(block);
        self.store.send(slot, side, block, self.layout.elements);
    }
}
