//! [`Stage`]: a whole network from a micro-batch to its loss and back.

use burn::tensor::{DType, Gradients, Tensor};

use crate::model::Network;
use crate::ops::autocast::autocast;
use crate::ops::checkpoint::differentiate;
use crate::residence::Residence;

/// A network with the graphs of its forwards.
pub struct Stage<N> {
    pub residence: Residence<N>,
    /// The compute type of the autocast region of forward.
    region: Option<DType>,
    /// Losses whose backward is still to come, by micro-batch; they hold the graph.
    live: Vec<(usize, Tensor<1>)>,
}

impl<N: Network> Stage<N> {
    pub fn new(residence: Residence<N>, region: Option<DType>) -> Self {
        Self { residence, region, live: Vec::with_capacity(1) }
    }

    /// The loss of a micro-batch, with its graph.
    pub fn output(&self, x: &N::Batch) -> Tensor<1> {
        let _region = autocast(self.region);
        self.residence.network().loss(x)
    }

    /// The loss of a micro-batch, without a graph: one that is dropped keeps its activations until the next backward.
    pub fn loss(&self, x: &N::Batch) -> Tensor<1> {
        let _region = autocast(self.region);
        self.residence.network().valid().loss(x)
    }

    /// The loss of a micro-batch, outside of its graph, which is kept for backward.
    pub fn forward(&mut self, micro_batch: usize, x: &N::Batch) -> Tensor<1> {
        let y = self.output(x);
        self.live.push((micro_batch, y.clone()));
        y.inner()
    }

    /// The gradients of a micro-batch. `dy`: of its loss, or 1. Its graph is freed.
    ///
    /// # Panics
    /// When there was no forward of the micro-batch.
    pub fn backward(&mut self, micro_batch: usize, dy: Option<Tensor<1>>) -> Gradients {
        let place = self.live.iter().position(|(other, _)| *other == micro_batch);
        let (_, y) = self.live.swap_remove(place.expect("forward comes before backward"));
        gradients(y, dy)
    }
}

/// The gradients of everything that y was computed from. `dy`: the gradient of y, or 1.
pub fn gradients(y: Tensor<1>, dy: Option<Tensor<1>>) -> Gradients {
    match dy {
        None => y.backward(),
        Some(dy) => differentiate(y, dy),
    }
}
