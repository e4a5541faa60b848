//! [`Resident`]: the parameters of a module itself, which stay on the device.

use std::collections::HashMap;
use std::sync::Arc;

use burn::module::{Module, ParamId};
use burn::tensor::{Device, Gradients, Tensor, TensorData};

use super::ParameterStore;
use super::sharded::ShardedModule;
use crate::ops::gate::Gates;
use crate::ops::parameters::update_each;
use crate::optim::{GradientSet, Optimizer, StepSize, Visit};
use crate::params::named::{self, Named};
use crate::params::table::{Table, id};

pub struct Resident<M> {
    /// `None` only while an update writes over it.
    module: Option<M>,
    /// All parameters of the network, including those that are not in the module.
    pub table: Arc<Table>,
    /// Since the last update.
    pub gradients: GradientSet,
    optimizer: Optimizer,
    /// If ranks divide gradients and optimizer, they are here instead.
    sharded: Option<ShardedModule>,
}

impl<M: Module> Resident<M> {
    /// # Panics
    /// When the host does not have enough memory for the state of an optimizer there.
    pub fn new(module: M, table: Arc<Table>, mut optimizer: Optimizer) -> Self {
        optimizer.adopt(&module);
        Self { module: Some(module), table, gradients: GradientSet::default(), optimizer, sharded: None }
    }

    /// With gradients and optimizer divided among ranks.
    pub fn divided(module: M, table: Arc<Table>, sharded: ShardedModule) -> Self {
        Self { sharded: Some(sharded), ..Self::new(module, table, Optimizer::None) }
    }

    /// As [`Residence::gates`](super::Residence::gates).
    pub fn gates(&self, last: bool) -> Option<Gates> {
        self.sharded.as_ref()?.gates(last)
    }

    /// As [`Residence::sum_over_ranks`](super::Residence::sum_over_ranks).
    pub fn sum_over_ranks(&self) {
        if let Some(sharded) = &self.sharded {
            sharded.sum();
            sharded.settle();
        }
    }

    pub fn module(&self) -> &M {
        self.module.as_ref().expect("between updates")
    }

    pub fn optimizer(&self) -> &Optimizer {
        self.sharded.as_ref().map_or(&self.optimizer, ShardedModule::optimizer)
    }

    /// Visits the state that the updates of a step share on the device.
    pub fn visit_shared(&mut self, device: &Device, visit: &mut Visit) {
        if let Optimizer::OnDevice(optimizer) = &mut self.optimizer {
            optimizer.visit_shared(device, visit);
        }
    }

    /// Replaces the values of some parameters; the new ones are flat and outside of autodiff.
    pub fn replace(&mut self, values: HashMap<ParamId, Tensor<1>>) {
        let module = self.module.take().expect("between updates");
        self.module = Some(update_each(module, values, |_, _, value| value));
    }

    /// Adds a micro-batch's gradients.
    pub fn add(&mut self, gradients: Gradients) {
        let module = self.module.as_ref().expect("between updates");
        match &self.sharded {
            None => self.gradients.add(module, gradients),
            Some(sharded) => sharded.add(module, gradients),
        }
    }
}

impl<M: Module> ParameterStore for Resident<M> {
    fn make_states(&mut self) {
        self.optimizer.make_states(self.module.as_ref().expect("between updates"));
        self.sharded.iter_mut().for_each(ShardedModule::make_states);
    }

    fn squares(&self) -> Option<Tensor<1>> {
        self.sharded.as_ref().map_or_else(|| self.gradients.squares(), ShardedModule::squares)
    }

    fn update(&mut self, size: &StepSize) {
        let module = self.module.take().expect("between updates");
        self.module = Some(match &mut self.sharded {
            None => self.optimizer.step(module, std::mem::take(&mut self.gradients), size),
            Some(sharded) => sharded.update(module, size),
        });
    }

    fn settle(&mut self) {
        self.sharded.iter().for_each(ShardedModule::settle);
    }

    fn value(&mut self, name: &str) -> Option<TensorData> {
        named::value(self.module(), name)
    }

    fn visit_states(&mut self, visit: &mut Visit) {
        for entry in &self.table.entries {
            self.optimizer.visit(id(&entry.name), &entry.name, visit);
        }
        self.sharded.iter_mut().for_each(|sharded| sharded.visit_states(visit));
    }

    fn gradients(&mut self) -> Named {
        named::gradients(self.module(), &self.table, &self.gradients)
    }
}
