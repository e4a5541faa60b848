//! The engine as a [`ParameterStore`]: who updates blocks, their gradients and their values by name.

use burn::tensor::{Tensor, TensorData};

use super::Engine;
use super::host_updates::HostUpdates;
use crate::device::{Buffers, Side};
use crate::optim::host::Work;
use crate::optim::{DeviceOptimizer, Kept, Optimizer, OptimizerConfig, StepSize, Visit};
use crate::params::named::{Named, wide};
use crate::residence::ParameterStore;
use crate::residence::activations::Activations;
use crate::residence::turns::Turns;

/// Who updates blocks.
pub enum Updates {
    Nobody,
    OnDevice(Box<DeviceOptimizer>),
    OnHost(HostUpdates),
}

impl Engine {
    /// Takes the blocks' updates over, before the first backward. `optimizer`: of the network's other parameters,
    /// whose worker on the host serves blocks too. `wants_squares`: whether squares of gradients are added up.
    pub(super) fn begin_updates(
        &mut self,
        config: &OptimizerConfig,
        optimizer: &Optimizer,
        wants_squares: bool,
    ) {
        self.wants_squares = wants_squares;
        self.updates = match (optimizer, config.rule()) {
            (Optimizer::OnHost(host), _) => {
                let trainable = self.layouts.iter().map(|layout| layout.trainable_elements()).collect();
                let mut updates = HostUpdates::new(host.worker().clone(), trainable);
                for block in self.trained() {
                    updates.adopt(&mut *self.store, self.size.dtype, block, self.ids[block]);
                }
                Updates::OnHost(updates)
            }
            (_, Some(rule)) => Updates::OnDevice(Box::new(DeviceOptimizer::new(rule))),
            (_, None) => Updates::Nobody,
        };
    }

    /// A block's buffer, arrived on the host.
    fn host(&mut self, side: Side, block: usize) -> &mut [u8] {
        self.expect(side, block);
        self.store.host(side, block)
    }

    /// Forgets the gradients so far.
    pub(super) fn forget(&mut self) {
        let blocks = self.take_summed();
        if let Updates::OnHost(updates) = &mut self.updates {
            // Its masters have the weights that the gradients took the place of; a resident block has its own.
            let lost =
                |block: &usize| self.size.buffers[*block] == Buffers::One && !self.slots.is_resident(*block);
            for block in blocks.into_iter().filter(lost) {
                updates.restore(&mut *self.store, block, self.ids[block]);
            }
        }
    }

    /// The blocks with gradients of this step, which ends.
    fn take_summed(&mut self) -> Vec<usize> {
        self.squares.fill(None);
        let summed = self.summed.iter_mut().enumerate();
        summed.filter_map(|(block, summed)| std::mem::take(summed).then_some(block)).collect()
    }

    /// The blocks with trainable parameters.
    fn trained(&self) -> Vec<usize> {
        (0..self.layouts.len()).filter(|block| self.layouts[*block].trainable > 0).collect()
    }

    /// One of a block's parameters, or its gradient.
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

    /// Updates a block's trained parameters: those of a resident one where they are. Of one that moves they come with
    /// their gradients and go back; a slot that holds the block has them too.
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

    /// Begins a block's update, unless its gradients have. What a resident block's slot holds is stale then.
    fn update_on_host(&mut self, block: usize, work: Work) {
        let Updates::OnHost(updates) = &self.updates else { unreachable!("asked by the caller") };
        if let Some(slot) = self.slots.kept_gradients(block).filter(|_| !updates.has_begun(block)) {
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

    /// On the device or on the host. A slot through which blocks move keeps one that is frozen in part through an update
    /// on the device; else what it held of an updated block is stale.
    fn update(&mut self, size: &StepSize) {
        let blocks = self.take_summed();
        match &mut self.updates {
            Updates::Nobody => {}
            Updates::OnHost(_) => {
                // Reads the norm where gradients are clipped: no update begins before it is known.
                let work = Work::step(size);
                // The gradients of the last block were here first.
                blocks.into_iter().rev().for_each(|block| self.update_on_host(block, work));
                self.end_updates();
            }
            Updates::OnDevice(_) => {
                if blocks.iter().any(|block| !self.layouts[*block].is_frozen_in_part()) {
                    // Such blocks are updated in these slots.
                    (0..self.slots.moving()).for_each(|slot| self.release(slot));
                }
                blocks.into_iter().for_each(|block| self.update_on_device(block, size));
            }
        }
        self.settle();
    }

    /// Waits until the weights of all blocks that are updated on the host are there.
    fn finish(&mut self) {
        (0..self.layouts.len()).for_each(|block| self.collect(block));
    }

    fn settle(&mut self) {
        self.store.settle();
        self.activations.iter_mut().for_each(Activations::settle);
    }

    fn value(&mut self, name: &str) -> Option<TensorData> {
        let (block, part) = name.strip_prefix(self.prefix)?.strip_prefix('.')?.split_once('.')?;
        let block = block.parse::<usize>().ok().filter(|block| *block < self.layouts.len())?;
        let i = self.layouts[block].find(part)?;
        Some(self.part(Side::Weights, block, i))
    }

    fn visit_states(&mut self, visit: &mut Visit) {
        self.finish();
        for block in self.trained() {
            let id = self.ids[block];
            let name = format!("{}.{block}", self.prefix);
            let visit = &mut |value: &str, kept: Kept<'_>| visit(&format!("{name}.{value}"), kept);
            match &mut self.updates {
                Updates::Nobody => {}
                Updates::OnDevice(optimizer) => optimizer.visit(id, visit),
                Updates::OnHost(updates) => updates.worker().visit(id, visit),
            }
        }
    }

    fn gradients(&mut self) -> Named {
        let mut found = Named::new();
        for block in (0..self.layouts.len()).filter(|block| self.summed[*block]).collect::<Vec<_>>() {
            for i in 0..self.layouts[block].trainable {
                found.push((self.name(block, i), wide(self.part(Side::Gradients, block, i))));
            }
        }
        found
    }
}
