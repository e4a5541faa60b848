//! AdamW on the host: fp32 master weights and moments in ordinary memory, and updates on all cores beside
//! what the device computes.
//!
//! Parameters cross in page-locked buffers, one for each block of the network and one for each parameter
//! outside of blocks: a gradient comes in it, and the new weights go back in its place.

mod arithmetic;
mod worker;

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

pub use arithmetic::Work;
pub use worker::{Pending, Worker};

use super::{AdamW, GradientSet};
use crate::device::{DeviceId, Mirror};

/// The parameters of a module that are updated on the host; those of blocks have their own way
/// ([`Blocks`](crate::residence::Blocks)) and share the worker.
pub struct HostAdamW {
    worker: Worker,
    device: DeviceId,
    mirrors: HashMap<ParamId, Box<dyn Mirror>>,
}

impl HostAdamW {
    pub fn new(rule: AdamW, device: DeviceId) -> Self {
        Self { worker: Worker::new(rule), device, mirrors: HashMap::new() }
    }

    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Takes the parameters' values as master weights: before the first step.
    ///
    /// # Panics
    /// When the host has not enough memory.
    pub fn adopt<M: Module>(&mut self, module: &M) {
        module.visit(&mut Adopt(self));
    }

    /// Updates every parameter that has a gradient.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, work: Work) -> M {
        let mut send = Send { host: self, gradients, work, pending: HashMap::new() };
        module.visit(&mut send);
        let pending = send.pending;
        module.map(&mut Fetch { host: self, pending })
    }
}

struct Adopt<'a>(&'a mut HostAdamW);

impl ModuleVisitor for Adopt<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let HostAdamW { worker, device, mirrors } = self.0;
        let tensor = param.val().inner();
        let (elements, dtype) = (tensor.shape().num_elements(), tensor.dtype());
        let mut mirror = device.mirror(elements, dtype).unwrap_or_else(|e| panic!("{e}"));
        mirror.send(tensor.into_dispatch());
        let adopted = worker.submit(param.id, mirror.lend(), Work::Adopt(dtype)).wait();
        mirror.give_back(adopted);
        mirrors.insert(param.id, mirror);
    }
}

/// Hands all gradients to the worker.
struct Send<'a> {
    host: &'a mut HostAdamW,
    gradients: GradientSet,
    work: Work,
    pending: HashMap<ParamId, Pending>,
}

impl ModuleVisitor for Send<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let size = param.val().shape().num_elements();
        let Some(gradient) = self.gradients.take(param.id, size) else { return };
        let mirror = self.host.mirrors.get_mut(&param.id).expect("parameters are adopted first");
        mirror.send(gradient.into_dispatch());
        self.pending.insert(param.id, self.host.worker.submit(param.id, mirror.lend(), self.work));
    }
}

/// Takes the new weights back.
struct Fetch<'a> {
    host: &'a mut HostAdamW,
    pending: HashMap<ParamId, Pending>,
}

impl ModuleMapper for Fetch<'_> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = parameter.consume();
        let Some(pending) = self.pending.remove(&id) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let mirror = self.host.mirrors.get_mut(&id).expect("it was sent");
        mirror.give_back(pending.wait());
        let shape = tensor.shape();
        let flat = tensor.inner().reshape([shape.num_elements()]);
        let updated = Tensor::<1>::from_dispatch(mirror.fetch(flat.into_dispatch()));
        Param::from_mapped_value(id, Tensor::from_inner(updated.reshape(shape)).require_grad(), mapper)
    }
}
