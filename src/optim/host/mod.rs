//! Optimizers on the host: fp32 master weights and a rule's state in ordinary memory, and updates on all cores
//! while the device computes.
//!
//! Parameters cross in page-locked buffers, one for each block of the network and one for each parameter
//! outside of blocks: a gradient comes in it, and the new weights go back in its place.

mod adamw;
mod arrivals;
mod state;
mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::module::Module;
use burn::tensor::Tensor;

pub use adamw::AdamWOnHost;
pub use state::{HostParameters, HostRule, HostState, HostStep, Work};
pub use worker::{Pending, Worker};

use super::GradientSet;
use crate::measure::alloc::Room;
use crate::ops::gate::{Gates, gates};
use crate::ops::parameters::{each_parameter, update_each};
use crate::words::DeviceId;
use arrivals::Arrivals;

/// The parameters of a module that are updated on the host. Buffers of others may share the worker.
pub struct HostOptimizer {
    worker: Worker,
    device: DeviceId,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl HostOptimizer {
    /// `room`: for master weights and the rule's state.
    pub fn new(rule: HostRule, device: DeviceId, room: Room) -> Self {
        Self { worker: Worker::new(rule, room), device, arrivals: Arc::default() }
    }

    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Takes the values of the trainable parameters as master weights: before the first step.
    ///
    /// # Panics
    /// When the host has not enough memory.
    pub fn adopt<M: Module>(&mut self, module: &M) {
        each_parameter(module, |id, parameter| {
            if !parameter.is_require_grad() {
                return;
            }
            let (elements, dtype) = (parameter.shape().num_elements(), parameter.dtype());
            let mut mirror = self.device.mirror(elements, dtype).unwrap_or_else(|e| panic!("{e}"));
            mirror.send(parameter.inner().into_dispatch());
            let adopted = self.worker.submit(id, mirror.lend(), Work::Adopt { elements, dtype }).wait();
            mirror.give_back(adopted);
            self.arrivals().mirrors.insert(id, mirror);
        });
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().expect("no backward panicked")
    }

    /// Gates of the forward whose backward is the last before an update: there its updates begin, each when its gradient
    /// has that of the `earlier` micro-batches.
    pub fn gates(&self, earlier: GradientSet, work: Work, wants_squares: bool) -> Gates {
        *self.arrivals() = Arrivals { earlier, squares: None, ..std::mem::take(&mut *self.arrivals()) };
        let (worker, arrivals) = (self.worker.clone(), self.arrivals.clone());
        gates(Arc::new(move |gradients| {
            let mut arrivals = arrivals.lock().expect("no backward panicked");
            arrivals.arrive(&worker, gradients, work, wants_squares);
        }))
    }

    /// The gradients of earlier micro-batches that no gate has taken.
    pub fn take_earlier(&self) -> GradientSet {
        std::mem::take(&mut self.arrivals().earlier)
    }

    /// Σ g² of the gradients that gates have taken, [1] in fp32.
    pub fn squares(&self) -> Option<Tensor<1>> {
        self.arrivals().squares.clone()
    }

    /// Updates every parameter that has a gradient and is not under way.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, work: Work) -> M {
        let mut arrivals = self.arrivals();
        let mut gradients: HashMap<_, _> = gradients.into_map();
        each_parameter(&module, |id, _| {
            if let Some(gradient) = gradients.remove(&id) {
                arrivals.send(&self.worker, id, gradient, work);
            }
        });
        arrivals.squares = None;
        let pending = std::mem::take(&mut arrivals.pending);
        update_each(module, pending, |id, parameter, pending: Pending| {
            let mirror = arrivals.mirrors.get_mut(&id).expect("it was sent");
            mirror.give_back(pending.wait());
            Tensor::from_dispatch(mirror.fetch(parameter.into_dispatch()))
        })
    }
}
