//! [`Arrivals`]: buffers of single parameters that are updated on the host, and updates that begin in backward, each when its
//! gradient is final: then gradients never exist all at once.

use std::collections::HashMap;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::Tensor;

use super::{Pending, Work, Worker};
use crate::device::Mirror;
use crate::ops::parameters::flat;
use crate::optim::{GradientSet, squares};

#[derive(Default)]
pub struct Arrivals {
    pub mirrors: HashMap<ParamId, Box<dyn Mirror>>,
    /// Updates that have begun.
    pub pending: HashMap<ParamId, Pending>,
    /// Sums of earlier micro-batches, to which gradients that arrive are added.
    pub earlier: GradientSet,
    /// Σ g² of what has arrived, [1] in fp32.
    pub squares: Option<Tensor<1>>,
}

impl Arrivals {
    /// Sends a gradient to the host, where its update begins behind the copy.
    ///
    /// # Panics
    /// When the parameter was not adopted, or its update has begun.
    pub fn send(&mut self, worker: &Worker, id: ParamId, gradient: DispatchTensor, work: Work) {
        let mirror = self.mirrors.get_mut(&id).expect("parameters are adopted first");
        mirror.send(flat(gradient).into_dispatch());
        let before = self.pending.insert(id, worker.submit(id, mirror.lend(), work));
        assert!(before.is_none(), "a parameter has one gradient a step");
    }

    /// Gradients of the last backward before an update: they are final with those of earlier micro-batches.
    pub fn arrive(
        &mut self,
        worker: &Worker,
        gradients: Vec<(ParamId, DispatchTensor)>,
        work: Work,
        wants_squares: bool,
    ) {
        for (id, gradient) in gradients {
            let gradient = match self.earlier.take(id) {
                None => gradient,
                Some(earlier) => {
                    let sum = Tensor::<1>::from_dispatch(earlier) + Tensor::from_dispatch(gradient);
                    sum.into_dispatch()
                }
            };
            if wants_squares {
                let squares = squares(vec![gradient.clone()]);
                self.squares = self.squares.take().into_iter().chain([squares]).reduce(|a, b| a + b);
            }
            self.send(worker, id, gradient, work);
        }
    }
}
