//! The engine as a [`ParameterStore`]: who updates blocks, their gradients and their values by name.

use burn::tensor::{Tensor, TensorData};

use super::Engine;
use super::host_updates::HostUpdates;
use crate::device::Side;
use crate::optim::host::Work;
use crate::optim::{DeviceOptimizer, Kept, Optimizer, OptimizerConfig, StepSize, Visit};
use crate::params::named::{Named, wide};
use crate::residence::ParameterStore;
use crate::residence::activations::Activations;

/// Who updates blocks.
pub enum Updates {
    Nobody,
    OnDevice(Box<DeviceOptimizer>),
    OnHost(HostUpdates),
}

impl Engine {
    /// Takes the blocks' updates over, before the first backward. `optimizer`: of the network's other parameters,
    /// whose worker on the host serves blocks too. `wants_squares`: whether squares of gradients are added up.
    pub fn begin(&mut self, config: &OptimizerConfig, optimizer: &Optimizer, wants_squares: bool) {
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
    pub fn discard(&mut self) {
        let summed = std::mem::replace(&mut self.summed, vec![false; self.size.blocks]);
        self.squares.fill(None);
        if let (Updates::OnHost(updates), false) = (&mut self.updates, self.size.gradients) {
            // Its masters have the weights that the gradients took the place of.
            for block in (0..self.size.blocks).filter(|block| summed[*block]) {
                updates.restore(&mut *self.store, block, self.ids[block]);
            }
        }
    }

    /// The blocks with trainable parameters.
    fn trained(&self) -> Vec<usize> {
        (0..self.size.blocks).filter(|block| self.layouts[*block].trainable > 0).collect()
    }

    /// One of a block's parameters, or its gradient.
    fn part(&mut self, side: Side, block: usize, i: usize) -> TensorData {
        let (dtype, part) = (self.size.dtype, self.layouts[block].parts[i].clone());
        let bytes = part.first * dtype.size()..(part.first + part.elements()) * dtype.size();
        let values = self.host(side, block)[bytes].to_vec();
        TensorData::from_bytes_vec(values, part.shape, dtype)
    }

    fn update_on_device(&mut self, block: usize, size: &StepSize) {
        let (slot, elements) = (block % self.holds.len(), self.layouts[block].trainable_elements());
        let from = self.gradient_slot();
        self.fill(slot, Side::Weights, block);
        self.fill(from, Side::Gradients, block);
        self.store.filled(slot);
        self.store.filled(from);
        let [weights, gradients] =
            [slot, from].map(|slot| Tensor::from_dispatch(self.store.view(slot, 0, &[elements])));
        let Updates::OnDevice(optimizer) = &mut self.updates else { unreachable!("asked by the caller") };
        let updated = optimizer.update(self.ids[block], weights, gradients, size);
        self.store.used(from);
        self.store.clear(from);
        self.store.write(slot, vec![(0, updated.into_dispatch())]);
        self.send(slot, Side::Weights, block);
        if self.movement.host_waits() {
            self.store.wait();
        }
    }
}

impl ParameterStore for Engine {
    fn make_states(&mut self) {
        let trained = self.trained();
        if let Updates::OnDevice(optimizer) = &mut self.updates {
            for block in trained {
                optimizer.state(self.ids[block], self.layouts[block].trainable_elements(), &self.device);
            }
        }
    }

    fn squares(&self) -> Option<Tensor<1>> {
        self.squares.iter().flatten().cloned().reduce(|sum, more| sum + more)
    }

    /// On the device or on the host. The slots are empty after an update: what they held is stale.
    fn update(&mut self, size: &StepSize) {
        let summed = std::mem::replace(&mut self.summed, vec![false; self.size.blocks]);
        self.squares.fill(None);
        let blocks = (0..self.size.blocks).filter(|block| summed[*block]);
        if !matches!(self.updates, Updates::Nobody) {
            (0..self.holds.len()).for_each(|slot| self.release(slot));
        }
        match &mut self.updates {
            Updates::Nobody => {}
            Updates::OnHost(updates) => {
                // Reads the norm where gradients are clipped: no update begins before it is known.
                let work = Work::step(size);
                // The gradients of the last block were here first.
                blocks.rev().for_each(|block| updates.update(&mut *self.store, block, self.ids[block], work));
                updates.end_step();
            }
            Updates::OnDevice(_) => blocks.for_each(|block| self.update_on_device(block, size)),
        }
        self.settle();
    }

    /// Waits until the weights of all blocks that are updated on the host are there.
    fn finish(&mut self) {
        (0..self.size.blocks).for_each(|block| self.collect(block));
    }

    fn settle(&mut self) {
        self.store.settle();
        self.activations.iter_mut().for_each(Activations::settle);
    }

    fn value(&mut self, name: &str) -> Option<TensorData> {
        let (block, part) = name.strip_prefix(self.prefix)?.strip_prefix('.')?.split_once('.')?;
        let block = block.parse::<usize>().ok().filter(|block| *block < self.size.blocks)?;
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
        for block in (0..self.size.blocks).filter(|block| self.summed[*block]).collect::<Vec<_>>() {
            for i in 0..self.layouts[block].trainable {
                found.push((self.name(block, i), wide(self.part(Side::Gradients, block, i))));
            }
        }
        found
    }
}
