//! Optimizers on the host: fp32 master weights and a rule's state in ordinary memory, and updates on all cores
//! while the device computes.
//!
//! Parameters cross in page-locked buffers, one for each block of the network and one for each parameter
//! outside of blocks: a gradient comes in it, and the new weights go back in its place.

pub mod state;
mod worker;

use std::collections::HashMap;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;

pub use crate::optim::adamw::host::{AdamWOnHost, rate_of_updates};
pub use state::{HostParameters, HostRule, HostState, HostStep, Work};
pub use worker::{Pending, Worker, updating_threads};

use super::GradientSet;
use crate::common::DeviceId;
use crate::device::Mirror;
use crate::measure::alloc::Room;
use crate::ops::parameters::{each_parameter, flat, update_each};

/// The parameters of a module that are updated on the host. Buffers of others may share the worker.
pub struct HostOptimizer {
    pub worker: Worker,
    device: DeviceId,
    mirrors: HashMap<ParamId, Box<dyn Mirror>>,
}

impl HostOptimizer {
    /// `room`: for master weights and the rule's state.
    pub fn new(rule: HostRule, device: DeviceId, room: Room) -> Self {
        Self { worker: Worker::new(rule, room), device, mirrors: HashMap::new() }
    }

    /// Takes the values of the trainable parameters as master weights: before the first step.
    ///
    /// # Panics
    /// When the host has not enough memory.
    pub fn adopt<M: Module>(&mut self, module: &M) {
        each_parameter(module, |id, parameter| {
            if parameter.is_require_grad() {
                self.adopt_values(id, flat(parameter.inner().into_dispatch()));
            }
        });
    }

    /// The same of one flat parameter outside of autodiff, whose state is kept under `id`.
    ///
    /// # Panics
    /// As [`adopt`](Self::adopt).
    pub fn adopt_values(&mut self, id: ParamId, values: Tensor<1>) {
        let (elements, dtype) = (values.shape().num_elements(), values.dtype());
        let mut mirror = self.device.mirror(elements, dtype).unwrap_or_else(|e| panic!("{e}"));
        mirror.send(values.into_dispatch());
        let adopted = self.worker.submit(id, mirror.lend(), Work::Adopt { elements, dtype }).wait();
        mirror.give_back(adopted);
        self.mirrors.insert(id, mirror);
    }

    /// Updates every parameter that has a gradient.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, work: Work) -> M {
        let (mut gradients, mut pending) = (gradients.into_map(), HashMap::new());
        each_parameter(&module, |id, _| {
            let Some(gradient) = gradients.remove(&id) else { return };
            pending.insert(id, self.begin(id, flat(gradient), work));
        });
        update_each(module, pending, |id, parameter, pending: Pending| self.end(id, parameter, pending))
    }

    /// Begins the update of the parameter that was adopted under `id`, by a flat gradient of its type.
    ///
    /// # Panics
    /// When it was not adopted.
    pub fn begin(&mut self, id: ParamId, gradient: Tensor<1>, work: Work) -> Pending {
        let mirror = self.mirrors.get_mut(&id).expect("parameters are adopted first");
        mirror.send(gradient.into_dispatch());
        self.worker.submit(id, mirror.lend(), work)
    }

    /// The updated parameter, where the device can in the memory of the flat one, which nobody else holds.
    ///
    /// # Panics
    /// As [`Pending::wait`].
    pub fn end(&mut self, id: ParamId, parameter: Tensor<1>, pending: Pending) -> Tensor<1> {
        let mirror = self.mirrors.get_mut(&id).expect("it was sent");
        mirror.give_back(pending.wait());
        Tensor::from_dispatch(mirror.fetch(parameter.into_dispatch()))
    }
}
