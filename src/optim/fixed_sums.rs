//! [`FixedSums`]: sums of gradients over micro-batches that stay where they are in memory, so that recorded launches can
//! add to them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};

use super::GradientSet;
use crate::device;
use crate::ops::backend::cube;
use crate::ops::gate::{Gates, gates};
use crate::ops::kernels::elementwise::Sums;
use crate::ops::parameters::each_parameter;

/// The sums of a module on a CUDA device.
#[derive(Clone)]
pub struct FixedSums(Arc<Mutex<Places>>);

#[derive(Default)]
struct Places {
    /// A sum for every trainable parameter, in its type and shape.
    sums: HashMap<ParamId, DispatchTensor>,
    /// Parameters that backward has given a gradient.
    added: HashSet<ParamId>,
}

impl ModuleVisitor for Places {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let value = parameter.val();
        if value.is_require_grad() {
            let sum = device::zeros(value.dims(), (&value.device(), value.dtype()));
            self.sums.insert(parameter.id, sum.into_dispatch());
        }
    }
}

impl Places {
    fn add(&mut self, gradients: impl IntoIterator<Item = (ParamId, Tensor<1>)>) {
        // The rank of a tensor is a mark on its type alone.
        let mut sums = Sums::default();
        for (id, gradient) in gradients {
            sums.add_to(cube(Tensor::<1>::from_dispatch(self.sums[&id].clone())), &cube(gradient));
            self.added.insert(id);
        }
    }
}

impl FixedSums {
    /// Zeros for the trainable parameters of a module.
    pub fn new<M: Module>(module: &M) -> Self {
        let mut places = Places::default();
        module.visit(&mut places);
        Self(Arc::new(Mutex::new(places)))
    }

    /// The gates of a forward. They add a block's gradients as soon as its backward is over, so that one block's gradients
    /// exist besides the sums, and not those of all blocks.
    pub fn gates(&self) -> Gates {
        let sums = self.clone();
        gates(Arc::new(move |gradients| {
            let flat = |(id, gradient)| (id, Tensor::from_dispatch(gradient));
            sums.places().add(gradients.into_iter().map(flat));
        }))
    }

    /// Adds what the gates have left.
    pub fn add<M: Module>(&self, module: &M, mut gradients: Gradients) {
        let mut left = Vec::new();
        each_parameter(module, |id, parameter| {
            left.extend(parameter.grad_remove(&mut gradients).map(|gradient| (id, gradient)));
        });
        self.places().add(left);
    }

    /// All of them, of any shape.
    pub fn all(&self) -> Vec<Tensor<1>> {
        self.places().sums.values().cloned().map(Tensor::from_dispatch).collect()
    }

    /// The sums of parameters that have a gradient.
    pub fn set<M: Module>(&self, module: &M) -> GradientSet {
        let places = self.places();
        let added = places.sums.iter().filter(|(id, _)| places.added.contains(id));
        GradientSet::of_map(module, added.map(|(id, sum)| (*id, sum.clone())).collect())
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().expect("no panic")
    }
}
