//! [`HostUpdates`]: lends blocks' buffers to the optimizer on the host.

use burn::module::ParamId;
use burn::tensor::DType;

use super::Engine;
use super::updates::Updates;
use crate::device::{BlockStore, Buffers, Side};
use crate::optim::host::{Pending, Work, Worker};

impl Engine {
    pub(super) fn updates_on_arrival(&self) -> bool {
        matches!(&self.updates, Updates::OnHost(updates) if updates.on_arrival.is_some())
    }

    /// All updates of the step have begun.
    pub(super) fn end_updates(&mut self) {
        if let Updates::OnHost(updates) = &mut self.updates {
            updates.begun.fill(false);
            updates.on_arrival = None;
        }
    }

    /// Writes the weights of blocks back where gradients have replaced them: the masters still have them. A resident block
    /// has its own.
    pub(super) fn restore(&mut self, blocks: &[usize]) {
        let Updates::OnHost(updates) = &mut self.updates else { return };
        let lost =
            |block: &&usize| self.size.buffers[**block] == Buffers::One && !self.slots.is_resident(**block);
        for block in blocks.iter().filter(lost) {
            updates.restore(&mut *self.store, *block, self.ids[*block]);
        }
    }

    /// Takes a block's buffer back from the optimizer on the host, if it is lent.
    pub(super) fn collect(&mut self, block: usize) {
        if let Updates::OnHost(updates) = &mut self.updates {
            updates.collect(&mut *self.store, block);
        }
    }

    /// Takes a buffer back before it is read.
    pub(super) fn expect(&mut self, side: Side, block: usize) {
        self.collect(block);
        let one = self.size.buffers[block] == Buffers::One;
        let overwritten = side == Side::Weights && self.summed[block] && one;
        assert!(!overwritten, "the gradients of block {block} are in the place of its weights");
    }
}

pub struct HostUpdates {
    pub(super) worker: Worker,
    /// By block: elements of its trainable parameters.
    trainable: Vec<usize>,
    /// By block: its buffer, lent from the store.
    lent: Vec<Option<Pending>>,
    /// By block: whether its update of this step has begun.
    pub(super) begun: Vec<bool>,
    /// The update that begins when a block's gradients arrive; `None`: it waits for [`update`](Self::update).
    pub(super) on_arrival: Option<Work>,
}

impl HostUpdates {
    pub fn new(worker: Worker, trainable: Vec<usize>) -> Self {
        let count = trainable.len();
        let lent = (0..count).map(|_| None).collect();
        Self { worker, trainable, lent, begun: vec![false; count], on_arrival: None }
    }

    /// Makes a block's trainable weights its master weights.
    pub fn adopt(&mut self, store: &mut dyn BlockStore, dtype: DType, block: usize, id: ParamId) {
        let work = Work::Adopt { elements: self.trainable[block], dtype };
        self.submit(store, Side::Weights, block, id, work);
    }

    /// A block's gradients are on their way to the host.
    pub fn arriving(&mut self, store: &mut dyn BlockStore, block: usize, id: ParamId) {
        if let Some(work) = self.on_arrival {
            self.begin(store, block, id, work);
        }
    }

    /// Begins a block's update, unless it has begun.
    pub fn update(&mut self, store: &mut dyn BlockStore, block: usize, id: ParamId, work: Work) {
        if !self.begun[block] {
            self.begin(store, block, id, work);
        }
    }

    /// Writes a block's weights back over discarded gradients.
    pub fn restore(&mut self, store: &mut dyn BlockStore, block: usize, id: ParamId) {
        self.submit(store, Side::Gradients, block, id, Work::Restore);
    }

    /// If a block's buffer is lent, waits for it and gives it back to the store.
    pub fn collect(&mut self, store: &mut dyn BlockStore, block: usize) {
        if let Some(pending) = self.lent[block].take() {
            store.give_back(block, pending.wait(), self.trainable[block]);
        }
    }

    fn begin(&mut self, store: &mut dyn BlockStore, block: usize, id: ParamId, work: Work) {
        self.begun[block] = true;
        self.submit(store, Side::Gradients, block, id, work);
    }

    fn submit(&mut self, store: &mut dyn BlockStore, side: Side, block: usize, id: ParamId, work: Work) {
        self.collect(store, block);
        self.lent[block] = Some(self.worker.submit(id, store.lend(side, block), work));
    }
}
