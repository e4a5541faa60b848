//! The engine as a [`ParameterStore`]: updates of blocks, and their gradients and values by name.

use burn::tensor::{Tensor, TensorData};

use super::Engine;
use super::host_updates::HostUpdates;
use crate::device::Side;
use crate::optim::host::Work;
use crate::optim::{DeviceOptimizer, Kept, StepSize, Visit};
use crate::params::named::{Named, wide};
use crate::residence::ParameterStore;
use crate::residence::activations::Activations;
use crate::residence::layout::Layout;

/// Who updates blocks.
pub enum Updates {
    Nobody,
    OnDevice(Box<DeviceOptimizer>),
    OnHost(HostUpdates),
}

impl Engine {
    /// A block's buffer, once it has arrived on the host.
    fn host(&mut self, side: Side, block: usize) -> &mut [u8] {
        self.expect(side, block);
        self.store.host(side, block)
    }

    /// The blocks with gradients, which are forgotten.
    pub(super) fn take_summed(&mut self) -> Vec<usize> {
        self.squares.fill(None);
        let summed = self.summed.iter_mut().enumerate();
        summed.filter_map(|(block, summed)| std::mem::take(summed).then_some(block)).collect()
    }

    /// The blocks with trainable parameters.
    pub(super) fn trained(&self) -> Vec<usize> {
        (0..self.layouts.len()).filter(|block| self.layouts[*block].trainable > 0).collect()
    }

    /// A parameter of a block, or its gradient.
    fn part(&mut self, side: Side, block: usize, i: usize) -> TensorData {
        let (dtype, part) = (self.size.dtype, self.layouts[block].parts[i].clone());
        let slot = match side {
            Side::Weights => self.slots.of(block).filter(|_| self.slots.is_resident(block)),
            Side::Gradients => self.slots.kept_gradients(block),
        };
        if let Some(slot) = slot {
            self.store.filled(slot);
            // The rank of a tensor is a mark on its type alone.
            return Tensor::<1>::from_dispatch(self.store.view(slot, part.first, &part.shape)).into_data();
        }
        let bytes = part.first * dtype.size()..(part.first + part.elements()) * dtype.size();
        let values = self.host(side, block)[bytes].to_vec();
        TensorData::from_bytes_vec(values, part.shape, dtype)
    }

    /// Leaves these blocks' weights as they are, and their gradients behind.
    pub(super) fn forget(&mut self, blocks: &[usize]) {
        for block in blocks {
            let kept = self.slots.kept_gradients(*block);
            kept.into_iter().for_each(|slot| self.store.clear(slot));
        }
        self.restore(blocks);
    }

    fn update_all_on_device(&mut self, blocks: &[usize], size: &StepSize) {
        if blocks.iter().any(|block| !self.layouts[*block].is_frozen_in_part()) {
            // These slots are used for the updates.
            (0..self.slots.moving()).for_each(|slot| self.release(slot));
        }
        blocks.iter().for_each(|block| self.update_on_device(*block, size));
    }

    /// Updates the trained parameters of a block: of a resident block in place. Those of a block that moves come with their
    /// gradients and go back, and are also written into the slot that holds the block.
    fn update_on_device(&mut self, block: usize, size: &StepSize) {
        let (moves, elements) = (!self.slots.is_resident(block), self.layouts[block].trainable_elements());
        let held = self.slots.of(block);
        let slot = match held {
            Some(slot) if !moves => slot,
            _ if self.layouts[block].is_frozen_in_part() => self.slots.for_gradients(block),
            _ => block % self.slots.moving(),
        };
        let from = self.slots.for_gradients(block);
        if moves {
            self.fill(slot, Side::Weights, block, elements);
            self.fill(from, Side::Gradients, block, elements);
        }
        self.store.filled(slot);
        self.store.filled(from);
        let [weights, gradients] =
            [slot, from].map(|slot| Tensor::from_dispatch(self.store.view(slot, 0, &[elements])));
        let Updates::OnDevice(optimizer) = &mut self.updates else { unreachable!("asked by the caller") };
        let updated = optimizer.update(self.ids[block], weights, gradients, size).into_dispatch();
        self.store.used(from);
        self.store.clear(from);
        if let Some(holder) = held.filter(|_| moves) {
            self.store.filled(holder);
            self.store.write(holder, vec![(0, updated.clone())]);
            self.store.used(holder);
        }
        self.store.write(slot, vec![(0, updated)]);
        if moves {
            self.send(slot, Side::Weights, block);
        }
        if self.movement.host_waits() {
            self.store.wait();
        }
    }

    /// Begins a block's update, unless it has begun. The slot that holds the block is stale then.
    fn update_on_host(&mut self, block: usize, work: Work) {
        let Updates::OnHost(updates) = &self.updates else { unreachable!("asked by the caller") };
        if let Some(slot) = self.slots.kept_gradients(block).filter(|_| !updates.begun[block]) {
            self.send(slot, Side::Gradients, block);
        }
        if let Some(slot) = self.slots.of(block) {
            self.release(slot);
        }
        let Updates::OnHost(updates) = &mut self.updates else { unreachable!("as above") };
        updates.update(&mut *self.store, block, self.ids[block], work);
    }
}

impl ParameterStore for Engine {
    fn make_states(&mut self) {
        let trained = self.trained();
        if let Updates::OnDevice(optimizer) = &mut self.updates {
            for block in trained {
                let elements = self.layouts[block].trainable_elements();
                optimizer.state(self.ids[block], &[elements], &self.device);
            }
        }
    }

    fn squares(&self) -> Option<Tensor<1>> {
        self.squares.iter().flatten().cloned().reduce(|sum, more| sum + more)
    }

    /// After an update slots with updated blocks are stale. One exception: an update on the device of blocks that are frozen
    /// in part also writes into their slots.
    fn update(&mut self, size: &StepSize) {
        let blocks = self.take_summed();
        match &mut self.updates {
            Updates::Nobody => {}
            Updates::OnHost(_) => {
                // If gradients are clipped or scaled this reads their norm: no update begins before it is known.
                match Work::step(size) {
                    // The gradients of the last block arrived first.
                    Some(work) => {
                        blocks.into_iter().rev().for_each(|block| self.update_on_host(block, work));
                    }
                    None => self.forget(&blocks),
                }
                self.end_updates();
            }
            Updates::OnDevice(optimizer) => match optimizer.begin(size) {
                Some(size) => self.update_all_on_device(&blocks, &size),
                None => self.forget(&blocks),
            },
        }
        self.settle();
    }

    /// Waits for the weights of all blocks that are updated on the host.
    fn finish(&mut self) {
        (0..self.layouts.len()).for_each(|block| self.collect(block));
    }

    fn settle(&mut self) {
        self.store.settle();
        self.activations.iter_mut().for_each(Activations::settle);
    }

    fn value(&mut self, name: &str) -> Option<TensorData> {
        let (block, part) =
            Layout::place(name, &self.names, |block| self.layouts.get(block).map(|of| &**of))?;
        Some(self.part(Side::Weights, block, part))
    }

    fn visit_states(&mut self, visit: &mut Visit) {
        self.finish();
        if let Updates::OnDevice(optimizer) = &mut self.updates {
            let (device, shared) = (&self.device, self.names.shared());
            optimizer.visit_shared(device, &mut |value: &str, kept: Kept<'_>| {
                visit(&format!("{shared}.{value}"), kept);
            });
        }
        for block in self.trained() {
            let id = self.ids[block];
            let name = self.names.name(block);
            let visit = &mut |value: &str, kept: Kept<'_>| visit(&format!("{name}.{value}"), kept);
            match &mut self.updates {
                Updates::Nobody => {}
                Updates::OnDevice(optimizer) => optimizer.visit(id, visit),
                Updates::OnHost(updates) => updates.worker.visit(id, visit),
            }
        }
    }

    fn gradients(&mut self) -> Named {
        let mut found = Named::new();
        for block in (0..self.layouts.len()).filter(|block| self.summed[*block]).collect::<Vec<_>>() {
            for i in 0..self.layouts[block].trainable {
                let name = format!("{}.{}", self.names.name(block), self.layouts[block].parts[i].name);
                found.push((name, wide(self.part(Side::Gradients, block, i))));
            }
        }
        found
    }
}
