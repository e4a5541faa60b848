//! Adapters: what is added to linear layers of blocks, with parameters of its own. A [`Method`] is one file.

use std::fmt::Debug;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};

use super::LinearLayer;
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::{Layer, Weight, WeightLayout};
use crate::ops::lora::LowRank;
use crate::params::source::{Init, Source};
use crate::params::table::Group;
use crate::words::Rule;

/// A matrix of an adapter: its name within the linear layer, its shape, and what it is before training.
pub type Matrix = (&'static str, [usize; 2], Init);

/// A kind of adapter with its settings.
pub trait Method: Debug + Send + Sync {
    /// Whether linear layers of this name have one: `q_proj`.
    fn adapts(&self, layer: &str) -> bool;

    /// Its parameters for a layer from `inputs` to `outputs` columns.
    fn matrices(&self, inputs: usize, outputs: usize) -> Vec<Matrix>;

    /// The adapted layer's result [tokens, outputs] from its input [tokens, inputs], the layer, and the matrices in
    /// their order.
    fn forward(&self, x: Tensor<2>, layer: Layer, matrices: Vec<Weight>, masks: Masks) -> Tensor<2>;

    /// What is added to the layer where that is a product of low rank: operators of several layers can take it.
    fn low_rank(&self, _matrices: Vec<Weight>, _masks: Masks) -> Option<LowRank> {
        None
    }

    /// What the layer costs together with its adapter.
    fn cost(&self, setting: &Setting, sizes: [u64; 2], bias: bool, layout: WeightLayout) -> Cost;

    /// Refuses what does not go with a block of these layers.
    ///
    /// # Errors
    /// The key, and what to write.
    fn check(&self, _layers: &[LinearLayer]) -> Result<(), Rule> {
        Ok(())
    }

    /// Whether its matrices can be merged into the layers' own weights.
    fn merges(&self) -> bool {
        false
    }

    /// The weight of a layer without adapter that computes the same; `matrix` has the values of [`matrices`](Self::matrices)
    /// by name.
    fn merged(
        &self,
        weight: TensorData,
        _layout: WeightLayout,
        _matrix: &mut dyn FnMut(&str) -> TensorData,
    ) -> TensorData {
        weight
    }
}

/// What decides a layer's dropout mask.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// Of the forward; `None`: nothing is dropped.
    pub seed: Option<u64>,
    /// The layer's own number.
    pub layer: u64,
}

/// The adapter of one linear layer.
#[derive(Module, Debug)]
pub struct Adapter {
    matrices: Vec<Param<Tensor<2>>>,
    #[module(skip)]
    method: Arc<dyn Method>,
    /// A number that follows from the name of its first matrix.
    #[module(skip)]
    layer: u64,
}

impl Adapter {
    /// `None` where the layer of this source has none: it is not in a block, or the method leaves it out.
    pub fn new(source: &Source, inputs: usize, outputs: usize) -> Option<Self> {
        if !matches!(source.group(), Group::Block(_)) {
            return None;
        }
        let method = source.tuning().adapter.clone().filter(|method| method.adapts(source.module()))?;
        let source = source.within(Group::Adapter);
        let matrix = |(name, shape, init): Matrix| source.parameter(name, shape, init);
        let matrices: Vec<_> = method.matrices(inputs, outputs).into_iter().map(matrix).collect();
        let layer = matrices.first()?.id.val();
        Some(Self { matrices, method, layer })
    }

    /// As [`Method::forward`]. `seed`: of the forward's dropout.
    pub fn forward(&self, x: Tensor<2>, layer: Layer, seed: Option<u64>) -> Tensor<2> {
        self.method.forward(x, layer, self.weights(), self.masks(seed))
    }

    /// As [`Method::low_rank`].
    pub fn low_rank(&self, seed: Option<u64>) -> Option<LowRank> {
        self.method.low_rank(self.weights(), self.masks(seed))
    }

    fn weights(&self) -> Vec<Weight> {
        self.matrices.iter().map(weight).collect()
    }

    fn masks(&self, seed: Option<u64>) -> Masks {
        Masks { seed, layer: self.layer }
    }
}
