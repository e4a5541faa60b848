//! [`Stage`]: a range of a network's parts. The whole network is one.

use burn::tensor::{DType, Gradients, Tensor};

use crate::model::Network;
use crate::ops::autocast::autocast;
use crate::ops::checkpoint::differentiate;
use crate::residence::Residence;

/// A network from its micro-batch to its loss.
pub struct Stage<N> {
    pub residence: Residence<N>,
    /// The type of the autocast region that forward runs in.
    region: Option<DType>,
    /// Outputs whose backward is still to come, by micro-batch; they hold the graph.
    live: Vec<(usize, Tensor<1>)>,
}

impl<N: Network> Stage<N> {
    pub fn new(residence: Residence<N>, region: Option<DType>) -> Self {
        Self { residence, region, live: Vec::with_capacity(1) }
    }

    /// y of x, with the graph that it was computed by.
    pub fn output(&self, x: &N::Batch) -> Tensor<1> {
        let _region = autocast(self.region);
        self.residence.network().loss(x)
    }

    /// y of x, outside of the graph, which is kept for backward.
    pub fn forward(&mut self, micro_batch: usize, x: &N::Batch) -> Tensor<1> {
        let y = self.output(x);
        self.live.push((micro_batch, y.clone()));
        y.inner()
    }

    /// y of x of a network outside of autodiff: nothing is kept.
    pub fn infer(&self, x: &N::Batch) -> Tensor<1> {
        self.output(x).inner()
    }

    /// The gradients of the micro-batch, from that of y. Its graph is freed.
    ///
    /// # Panics
    /// Without its forward.
    pub fn backward(&mut self, micro_batch: usize, dy: Option<Tensor<1>>) -> Gradients {
        let place = self.live.iter().position(|(other, _)| *other == micro_batch);
        let (_, y) = self.live.swap_remove(place.expect("forward comes before backward"));
        gradients(y, dy)
    }
}

/// The gradients of what y was computed from; `dy`: that of y, or 1.
pub fn gradients(y: Tensor<1>, dy: Option<Tensor<1>>) -> Gradients {
    match dy {
        None => y.backward(),
        Some(dy) => differentiate(y, dy),
    }
}
