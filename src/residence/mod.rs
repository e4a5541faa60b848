//! Where a network's parameters, their gradients and the optimizer's state are, and `[offload]`: transformer
//! blocks that live on the host and come to the device only for their turn. Embedding, final norm and head stay on
//! the device. `parallel.shard` divides all of these among ranks.

mod activations;
mod config;
mod cost;
mod engine;
mod floor;
mod layout;
mod leaves;
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
pub use offloaded::{Compute, Offloaded};
pub use resident_blocks::ResidentBlocks;
pub use sharded::{Shard, ShardSizes, Sharding};
pub use store::ParameterStore;
pub use strategy::{Movement, Overlap, Strategy};

use crate::ops::autocast::{KeptCasts, keep_casts};
use crate::ops::gate::Gates;
use crate::ops::nf4;
use crate::optim::host::Work;
use crate::optim::{GradientSet, Optimizer, OptimizerConfig, StepSize, Visit};
use crate::params::named::{Named, wide};
use crate::params::table::Table;
use crate::words::DeviceId;
use crate::world::Group;
use resident::Resident;
use sharded::ShardedModule;

/// A network with all of its parameters, their gradients and the optimizer's state.
pub struct Residence<M> {
    resident: Resident<M>,
    offloaded: Option<Offloaded>,
    device: DeviceId,
    /// Those that divide it among them.
    ranks: Option<Group>,
}

impl<M: Module> Residence<M> {
    /// All of the network's parameters, and its blocks that are not the module's. `clips`: whether gradients are clipped by
    /// the norm over all of them.
    ///
    /// # Panics
    /// When the host has not enough memory for the state of an optimizer there.
    pub fn new(
        module: M,
        (table, offloaded): (Arc<Table>, Option<Offloaded>),
        config: &OptimizerConfig,
        placement: Placement,
        clips: bool,
    ) -> Self {
        let device = placement.device;
        let on_host = placement.offload.optimizer == Memory::Host;
        let host = on_host.then(|| (device, placement.offload.optimizer_state.room()));
        let optimizer = Optimizer::new(config, host);
        if let Some(blocks) = &offloaded {
            blocks.engine().begin(config, &optimizer, clips);
        }
        Self { resident: Resident::new(module, table, optimizer), offloaded, device, ranks: None }
    }

    /// The same of parameters that ranks divide among them.
    pub fn divided(
        module: M,
        (table, blocks): (Arc<Table>, Option<Offloaded>),
        config: &OptimizerConfig,
        device: DeviceId,
        sharding: &Sharding,
    ) -> Self {
        if let Some(blocks) = &blocks {
            blocks.engine().begin(config, &Optimizer::None, true);
        }
        let sharded = ShardedModule::new(sharding, &module, &table, config, &device.burn());
        let resident = Resident::divided(module, table, sharded);
        Self { resident, offloaded: blocks, device, ranks: Some(sharding.ranks.clone()) }
    }

    /// The gates of a forward, which is the `last` of its step or not, where ranks sum gradients during its backward.
    pub fn gates(&self, last: bool) -> Option<Gates> {
        self.resident.gates(last)
    }

    /// After the last backward of a step: its gradients are those of all ranks, where these divide them.
    pub fn sum_over_ranks(&mut self) {
        self.resident.sum_over_ranks();
    }

    pub fn network(&self) -> &M {
        self.resident.module()
    }

    /// Makes the buffers that inputs of blocks of up to `elements` elements wait in, where they wait on the host.
    ///
    /// # Panics
    /// When the host or the device has not enough memory.
    pub fn make_room(&self, elements: usize) {
        if let Some(blocks) = &self.offloaded {
            blocks.engine().make_room(elements);
        }
    }

    /// Makes what the optimizer keeps on the device.
    pub fn make_states(&mut self) {
        self.each(|store| store.make_states());
    }

    /// Keeps the casts of weights that stay on the device.
    pub fn keep_casts(&self) -> KeptCasts {
        keep_casts(self.network())
    }

    /// The backward that comes is the last of a step whose gradients are neither clipped nor looked at: updates
    /// on the host may begin as gradients arrive there.
    pub fn update_on_arrival(&mut self, size: &StepSize) {
        if let Some(blocks) = &self.offloaded {
            blocks.engine().update_on_arrival(Work::step(size));
        }
    }

    /// Adds what a micro-batch's backward gave.
    pub fn add(&mut self, gradients: Gradients) {
        self.resident.add(gradients);
        self.each(|store| store.settle());
    }

    /// The gradients since the last update, of what stays on the device.
    pub fn gradient_set(&mut self) -> &mut GradientSet {
        self.resident.gradients()
    }

    /// Puts other values in the place of some parameters on the device; they are flat and outside of autodiff.
    pub fn replace(&mut self, values: HashMap<ParamId, Tensor<1>>) {
        self.resident.replace(values);
    }

    /// Σ g² over all gradients, [1] in fp32, on the device; not finite where a gradient is not.
    pub fn squares(&mut self) -> Tensor<1> {
        let mut sum: Option<Tensor<1>> = None;
        self.each(|store| sum = sum.take().into_iter().chain(store.squares()).reduce(|a, b| a + b));
        let sum = sum.unwrap_or_else(|| Tensor::zeros([1], (&self.device.burn(), DType::F32)));
        // Each rank has its parts alone.
        let Some(ranks) = &self.ranks else { return sum };
        ranks.sum("squares of gradients", sum).wait().expect("every rank gets it")
    }

    /// Updates all parameters, and begins the next step.
    pub fn update(&mut self, size: &StepSize) {
        self.each(|store| store.update(size));
        self.each(|store| store.finish());
    }

    /// Forgets what a backward left on the host whose gradients are not [`add`](Self::add)ed: no other backward
    /// and no step adds to it, nor finds it in the place of a block's weights.
    pub fn discard(&self) {
        if let Some(blocks) = &self.offloaded {
            blocks.engine().discard();
        }
    }

    /// All of the network's parameters.
    pub fn table(&self) -> &Arc<Table> {
        self.resident.table()
    }

    /// A parameter as it is stored, wherever it is.
    ///
    /// # Panics
    /// When the table has none of this name.
    pub fn value(&mut self, name: &str) -> TensorData {
        let mut found = None;
        self.each(|store| found = found.take().or_else(|| store.value(name)));
        found.unwrap_or_else(|| panic!("there is no parameter {name}"))
    }

    /// The same, of a packed one the numbers that its codes give.
    ///
    /// # Panics
    /// As [`value`](Self::value).
    pub fn dense(&mut self, name: &str) -> TensorData {
        let value = self.value(name);
        let entry = self.table().entries.iter().find(|entry| entry.name == name);
        match entry.filter(|entry| entry.packed).map(|entry| &*entry.shape) {
            Some(&[rows, columns]) => nf4::unpack_data(&value, [rows, columns], value.dtype()),
            _ => value,
        }
    }

    /// Every parameter by name.
    pub fn parameters(&mut self) -> Named {
        let names: Vec<String> = self.table().entries.iter().map(|entry| entry.name.clone()).collect();
        names.into_iter().map(|name| (name.clone(), wide(self.dense(&name)))).collect()
    }

    /// All that the optimizer keeps between steps.
    pub fn visit_states(&mut self, visit: &mut Visit) {
        self.each(|store| store.visit_states(visit));
        self.resident.visit_shared(&self.device.burn(), visit);
    }

    /// Every gradient since the last update by name, summed over micro-batches; times the scale where there is
    /// one.
    pub fn gradients(&mut self) -> Named {
        let mut all = Named::new();
        self.each(|store| all.extend(store.gradients()));
        all
    }

    /// Seconds that updates on the host have taken since the last call.
    pub fn take_host_seconds(&self) -> Option<f64> {
        match self.resident.optimizer() {
            Optimizer::OnHost(host) => Some(host.worker().take_seconds()),
            Optimizer::None | Optimizer::OnDevice(_) => None,
        }
    }

    /// Moves blocks another way from now on.
    pub fn follow(&self, movement: Arc<dyn Movement>) {
        if let Some(blocks) = &self.offloaded {
            blocks.engine().follow(movement);
        }
    }

    /// Blocks first: what they begin runs behind what comes after.
    fn each(&mut self, mut work: impl FnMut(&mut dyn ParameterStore)) {
        if let Some(blocks) = &self.offloaded {
            work(&mut **blocks.engine());
        }
        work(&mut self.resident);
    }
}

#[cfg(test)]
mod tests;
