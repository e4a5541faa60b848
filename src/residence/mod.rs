//! Where a network's parameters, their gradients and the optimizer's state live. With `[offload]` transformer blocks live on
//! the host and come to the device only for their turn; embedding, final norm and head stay on the device. With
//! `parallel.shard` ranks divide all of these among them.

mod activations;
mod config;
mod cost;
mod engine;
mod floor;
mod layout;
mod leaves;
mod names;
mod offloaded;
mod resident;
mod resident_blocks;
mod sharded;
mod store;
mod strategy;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;

use burn::module::{Module, ParamId};
use burn::tensor::{DType, Gradients, Tensor, TensorData};

pub use config::{Memory, Offload, Placement, StatePlace};
pub use cost::{HostBytes, Moved, SlotBytes};
pub use floor::{Copies, Updated};
pub use names::BlockNames;
pub use offloaded::{Compute, Offloaded};
pub use resident_blocks::ResidentBlocks;
pub use sharded::{Shard, ShardSizes, Sharding};
pub use store::ParameterStore;
pub use strategy::{Movement, Overlap, Strategy};
pub use turns::SlotState;

use crate::common::DeviceId;
use crate::ops::autocast::{KeptCasts, keep_casts};
use crate::ops::gate::Gates;
use crate::ops::nf4;
use crate::optim::host::Work;
use crate::optim::{GradientSet, Optimizer, OptimizerConfig, StepSize, Visit};
use crate::params::named::Named;
use crate::params::table::Table;
use crate::world::ProcessGroup;
use resident::Resident;
use sharded::ShardedModule;

/// A network with all of its parameters, their gradients and the optimizer's state.
pub struct Residence<M> {
    resident: Resident<M>,
    offloaded: Option<Offloaded>,
    device: DeviceId,
    /// The ranks that divide it, if any do.
    ranks: Option<ProcessGroup>,
    /// Whether each update needs Σ g² over all gradients.
    needs_squares: bool,
}

impl<M: Module> Residence<M> {
    /// `offloaded`: the blocks that are not in the module. `sharding`: the ranks that divide the parameters, if any do.
    /// `needs_squares`: whether each update needs Σ g² over all gradients.
    ///
    /// # Panics
    /// When the host does not have enough memory for the state of an optimizer there.
    pub fn new(
        module: M,
        (table, offloaded): (Arc<Table>, Option<Offloaded>),
        config: &OptimizerConfig,
        (placement, sharding): (Placement, Option<&Sharding>),
        needs_squares: bool,
    ) -> Self {
        let device = placement.device;
        let on_host = placement.offload.optimizer == Memory::Host;
        let host = on_host.then(|| (device, placement.offload.optimizer_state.room()));
        let optimizer = Optimizer::new(config, host);
        if let Some(blocks) = &offloaded {
            blocks.engine().begin(config, &optimizer);
        }
        let resident = match sharding {
            None => Resident::new(module, table, optimizer),
            Some(sharding) => {
                let sharded = ShardedModule::new(sharding, &module, &table, optimizer, &device.burn());
                Resident::divided(module, table, sharded)
            }
        };
        let ranks = sharding.map(|sharding| sharding.ranks.clone());
        let residence = Self { resident, offloaded, device, ranks, needs_squares };
        residence.want_squares(false);
        residence
    }

    /// The gates of a forward, if ranks sum gradients during its backward. `last`: whether it is the last of its step.
    pub fn gates(&self, last: bool) -> Option<Gates> {
        self.resident.gates(last)
    }

    /// After the last backward of a step: waits for the sums of gradients that ranks divide among them.
    pub fn sum_over_ranks(&mut self) {
        self.resident.sum_over_ranks();
    }

    pub fn network(&self) -> &M {
        self.resident.module()
    }

    /// If inputs of blocks wait on the host, makes buffers for inputs of up to `elements` elements.
    ///
    /// # Panics
    /// When the host or the device does not have enough memory.
    pub fn make_room(&self, elements: usize) {
        self.offloaded.iter().for_each(|blocks| blocks.engine().make_room(elements));
    }

    /// Makes the optimizer's state on the device.
    pub fn make_states(&mut self) {
        self.each(|store| store.make_states());
    }

    /// Keeps the casts of weights that stay on the device.
    pub fn keep_casts(&self) -> KeptCasts {
        keep_casts(self.network())
    }

    /// Before the last backward of a step whose update does not depend on all gradients: lets updates on the host begin as
    /// gradients arrive there.
    pub fn update_on_arrival(&mut self, size: &StepSize) {
        if let (Some(blocks), Some(work)) = (&self.offloaded, Work::step(size)) {
            blocks.engine().update_on_arrival(work);
        }
    }

    /// Adds the gradients of a micro-batch.
    pub fn add(&mut self, gradients: Gradients) {
        self.resident.add(gradients);
        self.settle();
    }

    /// The gradients since the last update of the parameters that stay on the device.
    pub fn gradient_set(&mut self) -> &mut GradientSet {
        &mut self.resident.gradients
    }

    /// Replaces the values of some parameters on the device; the new ones are flat and outside of autodiff.
    pub fn replace(&mut self, values: HashMap<ParamId, Tensor<1>>) {
        self.resident.replace(values);
    }

    /// Whether from now on blocks add up the squares of their gradients, for [`squares`](Self::squares), also where no
    /// update needs them.
    pub fn want_squares(&self, wanted: bool) {
        let wanted = wanted || self.needs_squares;
        self.offloaded.iter().for_each(|blocks| blocks.engine().want_squares(wanted));
    }

    /// Σ g² over all gradients, [1] in fp32, on the device; not finite if a gradient is not.
    pub fn squares(&mut self) -> Tensor<1> {
        let mut sum: Option<Tensor<1>> = None;
        self.each(|store| sum = sum.take().into_iter().chain(store.squares()).reduce(|a, b| a + b));
        let sum = sum.unwrap_or_else(|| Tensor::zeros([1], (&self.device.burn(), DType::F32)));
        // Each rank has only its parts.
        let Some(ranks) = &self.ranks else { return sum };
        ranks.sum("squares of gradients", sum).wait().expect("every rank gets it")
    }

    /// Updates all parameters, unless the step is not to be applied, and forgets the gradients.
    pub fn update(&mut self, size: &StepSize) {
        self.each(|store| store.update(size));
        self.each(|store| store.finish());
    }

    /// Forgets the gradients that a backward has left on the host, if they are not [added](Self::add): no later step adds to
    /// them, or finds them in the place of a block's weights.
    pub fn discard(&self) {
        self.offloaded.iter().for_each(|blocks| blocks.engine().discard());
    }

    /// Where blocks that move are between two passes.
    pub fn slot_state(&self) -> SlotState {
        self.offloaded.as_ref().map_or_else(SlotState::default, |blocks| blocks.engine().slot_state())
    }

    /// Brings blocks that move to where they were, and forgets their gradients since.
    pub fn return_to(&self, state: &SlotState) {
        self.offloaded.iter().for_each(|blocks| blocks.engine().return_to(state));
    }

    /// After [`return_to`](Self::return_to): what follows until [`settle`](Self::settle) may be recorded as a graph.
    pub fn fork(&self) {
        self.offloaded.iter().for_each(|blocks| blocks.engine().fork());
    }

    /// What is computed from here on comes after all copies issued so far.
    pub fn settle(&mut self) {
        self.each(|store| store.settle());
    }

    /// Notes where a replayed graph has left blocks that move. What follows comes after the graph.
    pub fn join(&self, state: &SlotState) {
        self.offloaded.iter().for_each(|blocks| blocks.engine().join(state));
    }

    /// The table of all parameters of the network.
    pub fn table(&self) -> &Arc<Table> {
        &self.resident.table
    }

    /// A parameter as it is stored, wherever it lives.
    ///
    /// # Panics
    /// When there is no parameter of this name.
    pub fn value(&mut self, name: &str) -> TensorData {
        let mut found = None;
        self.each(|store| found = found.take().or_else(|| store.value(name)));
        found.unwrap_or_else(|| panic!("there is no parameter {name}"))
    }

    /// As [`value`](Self::value), but a packed parameter is unpacked to numbers.
    ///
    /// # Panics
    /// As [`value`](Self::value).
    pub fn dense(&mut self, name: &str) -> TensorData {
        let value = self.value(name);
        let entry = self.table().entries.iter().find(|entry| entry.name == name);
        match entry.filter(|entry| entry.packed).map(|entry| &*entry.shape) {
            Some(&[rows, columns]) => nf4::unpack_data(value.as_bytes(), [rows, columns], value.dtype()),
            _ => value,
        }
    }

    /// Every parameter by name.
    #[cfg(test)]
    pub fn parameters(&mut self) -> Named {
        let names: Vec<String> = self.table().entries.iter().map(|entry| entry.name.clone()).collect();
        names.into_iter().map(|name| (name.clone(), crate::params::named::wide(self.dense(&name)))).collect()
    }

    /// Visits the optimizer's state.
    pub fn visit_states(&mut self, visit: &mut Visit) {
        self.each(|store| store.visit_states(visit));
        self.resident.visit_shared(&self.device.burn(), visit);
    }

    /// Every gradient since the last update by name, summed over micro-batches, and multiplied by the scale if there is one.
    pub fn gradients(&mut self) -> Named {
        let mut all = Named::new();
        self.each(|store| all.extend(store.gradients()));
        all
    }

    /// Seconds of updates on the host since the last call.
    pub fn take_host_seconds(&self) -> Option<f64> {
        match self.resident.optimizer() {
            Optimizer::OnHost(host) => Some(host.worker.take_seconds()),
            Optimizer::None | Optimizer::OnDevice(_) => None,
        }
    }

    /// Moves blocks in another way from now on.
    pub fn follow(&self, movement: Arc<dyn Movement>) {
        if let Some(blocks) = &self.offloaded {
            blocks.engine().follow(movement);
        }
    }

    /// Blocks come first: what they begin runs behind the rest.
    fn each(&mut self, mut work: impl FnMut(&mut dyn ParameterStore)) {
        if let Some(blocks) = &self.offloaded {
            work(&mut **blocks.engine());
        }
        work(&mut self.resident);
    }
}

#[cfg(test)]
mod tests;
