//! Adapters: what is added to linear layers of blocks, with parameters of its own. A [`Method`] is one file.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};

use super::LinearLayer;
use crate::keys::Rule;
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::{Layer, Weight, WeightLayout};
use crate::ops::lora::{LowRank, dora};
use crate::ops::tensor_parallel::copy_to_ranks;
use crate::params::source::{Init, Source};
use crate::params::split::{Side, Split};
use crate::params::table::Group;
use crate::world::ProcessGroup;

/// A matrix of an adapter: its name within the linear layer, its shape, and what it is before training.
pub type Matrix = (&'static str, [usize; 2], Init);

/// A kind of adapter with its settings.
pub trait Method: Debug + Send + Sync {
    /// Whether linear layers of this name have one: `q_proj`.
    fn adapts(&self, layer: &str) -> bool;

    /// Its parameters for a layer from `inputs` to `outputs` columns.
    fn matrices(&self, inputs: usize, outputs: usize) -> Vec<Matrix>;

    /// The axis along which the matrix of this number divides among ranks with a layer that divides by this side; `None`:
    /// every rank has the whole.
    fn axis(&self, _matrix: usize, _side: Side) -> Option<usize> {
        None
    }

    /// The adapted layer's result [tokens, outputs] from its input [tokens, inputs], the layer, and the matrices in
    /// their order.
    fn forward(&self, x: Tensor<2>, layer: Layer, matrices: Vec<Weight>, masks: Masks) -> Tensor<2>;

    /// What is added to the layer, where that is a product of low rank, which operators over several layers can take.
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

/// The adapters of a network's linear layers.
#[derive(Clone, Debug)]
pub enum Adapters {
    /// One method for every layer that it adapts.
    Alike(Arc<dyn Method>),
    /// Methods of single layers: by block, and then by name.
    ByLayer(Vec<BTreeMap<String, Arc<dyn Method>>>),
}

impl Adapters {
    /// Whether linear layers of this name have one in some block.
    pub fn adapts(&self, layer: &str) -> bool {
        self.method(None, layer).is_some()
    }

    /// The adapter of the layer of this name in this block; without a block that of the first block that has one.
    pub fn method(&self, block: Option<usize>, layer: &str) -> Option<&Arc<dyn Method>> {
        match (self, block) {
            (Self::Alike(method), _) => Some(method).filter(|method| method.adapts(layer)),
            (Self::ByLayer(blocks), Some(block)) => blocks.get(block)?.get(layer),
            (Self::ByLayer(blocks), None) => blocks.iter().find_map(|layers| layers.get(layer)),
        }
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
    /// Those that the layer divides among, which have the matrix of each number whole or not.
    #[module(skip)]
    ranks: ProcessGroup,
    #[module(skip)]
    whole: Vec<bool>,
    #[module(skip)]
    method: Arc<dyn Method>,
    /// A number that follows from the name of its first matrix.
    #[module(skip)]
    layer: u64,
}

impl Adapter {
    /// `None` where the layer of this source has none: it is not in a block, or the method leaves it out.
    /// `weight`: the layer's, which some first values follow from.
    pub fn new(
        source: &Source,
        [inputs, outputs]: [usize; 2],
        weight: impl Fn() -> (Weight, WeightLayout),
    ) -> Option<Self> {
        let Group::Block(block) = source.group() else { return None };
        let method = source.tuning().adapter.as_ref()?.method(Some(block), source.module())?.clone();
        let (source, side) = (source.within(Group::Adapter), source.side());
        let parts = if let Some(Side::Outputs { parts }) = side { parts } else { 1 };
        let all = method.matrices(inputs, outputs);
        let axes: Vec<_> = (0..all.len()).map(|i| side.and_then(|side| method.axis(i, side))).collect();
        let matrix = |((name, shape, init), axis): (Matrix, &Option<usize>)| {
            let split = axis.map(|axis| Split { axis, parts });
            match init {
                Init::RowLengths => source.computed(name, shape, split, || {
                    let (weight, layout) = weight();
                    dora::first_magnitude(weight, layout)
                }),
                init => source.divided(name, shape, split, init),
            }
        };
        let matrices: Vec<_> = all.into_iter().zip(&axes).map(matrix).collect();
        let layer = matrices.first()?.id.val();
        let ranks = if side.is_some() { source.ranks().clone() } else { ProcessGroup::alone() };
        let whole = axes.iter().map(Option::is_none).collect();
        Some(Self { matrices, ranks, whole, method, layer })
    }

    /// As [`Method::forward`]. `seed`: of the forward's dropout.
    pub fn forward(&self, x: Tensor<2>, layer: Layer, seed: Option<u64>) -> Tensor<2> {
        self.method.forward(x, layer, self.weights(), self.masks(seed))
    }

    /// As [`Method::low_rank`].
    pub fn low_rank(&self, seed: Option<u64>) -> Option<LowRank> {
        self.method.low_rank(self.weights(), self.masks(seed))
    }

    /// Each rank has a part of the gradient of a matrix that it has whole.
    fn weights(&self) -> Vec<Weight> {
        let of = |(matrix, whole): (&Param<Tensor<2>>, &bool)| match (weight(matrix), whole) {
            (Weight { stored, cast, packed }, true) => {
                Weight { stored: copy_to_ranks(stored, &self.ranks), cast, packed }
            }
            (part, false) => part,
        };
        self.matrices.iter().zip(&self.whole).map(of).collect()
    }

    fn masks(&self, seed: Option<u64>) -> Masks {
        Masks { seed, layer: self.layer }
    }
}
