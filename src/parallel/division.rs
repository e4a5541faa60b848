//! [`Division`]: how a network is divided into stages, and the forward and backward of a stage.

use burn::tensor::{DType, Gradients, Tensor};

use super::schedule::order::{Order, Shape};
use super::stage::gradients;
use crate::model::{Network, Output, Part, Parts};
use crate::ops::autocast::autocast;
use crate::ops::backend::outside;
use crate::ops::checkpoint::{differentiate, entrance};

/// The stages of a cell's network.
#[derive(Clone, Debug)]
pub struct Division {
    pub order: Order,
    /// Number of blocks of the network.
    pub layers: usize,
    /// Whether stages keep only their input from forward to backward.
    pub recomputes: bool,
    /// Whether weights change between a micro-batch's forward and its backward.
    pub stashes: bool,
    /// The compute type of the autocast region of forward.
    pub region: Option<DType>,
}

impl Division {
    pub fn part(&self, stage: usize) -> Part {
        Part {
            blocks: self.order.shape.blocks(stage, self.layers),
            is_first: stage == 0,
            is_last: stage + 1 == self.order.shape.stages(),
            is_recomputed: self.recomputes,
        }
    }

    /// Updates of a step.
    pub fn updates(&self) -> usize {
        if self.stashes { self.order.shape.micro_batches } else { 1 }
    }

    /// The parts of the network that a rank has.
    pub fn parts(&self, rank: usize) -> Parts {
        Parts::Of(stages_of(self.order.shape, rank).map(|stage| self.part(stage)).collect())
    }

    /// The output of a part, outside of the graph, and what its backward needs. `x`: the output of the previous part.
    pub(super) fn forward<N: Network>(
        &self,
        part: &Part,
        network: &N,
        batch: &N::Batch,
        x: Option<Tensor<2>>,
    ) -> (Output, Live<N>) {
        let _region = autocast(self.region);
        let leaf = x.clone().map(|x| x.autodiff().require_grad());
        let (y, kept) = if part.is_recomputed {
            (network.valid().part(part, batch, x), None)
        } else {
            let y = network.part(part, batch, leaf.clone().map(entrance));
            (y.clone(), Some(y))
        };
        let y = match y {
            Output::Hidden(y) => Output::Hidden(outside(y)),
            Output::Loss(loss) => Output::Loss(outside(loss)),
        };
        (y, Live { x: leaf, y: kept, network: self.stashes.then(|| network.clone()) })
    }

    /// The gradients of a part's parameters and of its input, and the network of its forward if weights have changed since.
    /// `dy`: the gradient of its output. `scale`: of the loss, in the last part.
    pub(super) fn backward<N: Network>(
        &self,
        part: &Part,
        Live { x, y, network: own }: Live<N>,
        network: &N,
        batch: &N::Batch,
        (dy, scale): (Option<Tensor<2>>, Option<Tensor<1>>),
    ) -> (Gradients, Option<Tensor<2>>, Option<N>) {
        let y = y.unwrap_or_else(|| {
            let _region = autocast(self.region);
            own.as_ref().unwrap_or(network).part(part, batch, x.clone().map(entrance))
        });
        let mut found = match (y, dy) {
            (Output::Loss(loss), _) => gradients(loss, scale),
            (Output::Hidden(y), Some(dy)) => differentiate(y, dy),
            (Output::Hidden(_), None) => unreachable!("the last part has a loss"),
        };
        let dx = x.and_then(|x| x.grad_remove(&mut found));
        (found, dx, own)
    }
}

/// The stages of a rank, in rising order.
pub(super) fn stages_of(shape: Shape, rank: usize) -> impl Iterator<Item = usize> {
    (0..shape.stages()).filter(move |stage| shape.rank_of(*stage) == rank)
}

/// What a stage keeps of a micro-batch until its backward.
pub(super) struct Live<N> {
    /// The leaf of its input; `None` in the first stage.
    x: Option<Tensor<2>>,
    /// Its output with the graph; `None` if backward computes it again.
    y: Option<Output>,
    /// The network with the weights of this forward, if they change before backward.
    network: Option<N>,
}
