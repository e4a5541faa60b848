//! Adapters: what is added to linear layers of blocks, with parameters of its own. A [`Method`] is one file.

use std::fmt::Debug;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::source::{Init, Source};
use super::table::Group;
use crate::ops::dense::Arithmetic;

/// A matrix of an adapter: its name within the linear layer, its shape, and what it is before training.
pub type Matrix = (&'static str, [usize; 2], Init);

/// A kind of adapter with its settings.
pub trait Method: Debug + Send + Sync {
    /// Whether linear layers of this name have one: `q_proj`.
    fn adapts(&self, layer: &str) -> bool;

    /// Its parameters for a layer from `inputs` to `outputs` columns.
    fn matrices(&self, inputs: usize, outputs: usize) -> Vec<Matrix>;

    /// The adapted layer's result [tokens, outputs] from its input [tokens, inputs], its own result, and the
    /// matrices in their order.
    fn forward(
        &self,
        x: Tensor<2>,
        y: Tensor<2>,
        matrices: Vec<Tensor<2>>,
        arithmetic: Arithmetic,
    ) -> Tensor<2>;
}

/// The adapter of one linear layer.
#[derive(Module, Debug)]
pub struct Adapter {
    matrices: Vec<Param<Tensor<2>>>,
    #[module(skip)]
    method: Arc<dyn Method>,
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
        let matrices = method.matrices(inputs, outputs).into_iter().map(matrix).collect();
        Some(Self { matrices, method })
    }

    /// As [`Method::forward`].
    pub fn forward(&self, x: Tensor<2>, y: Tensor<2>, arithmetic: Arithmetic) -> Tensor<2> {
        self.method.forward(x, y, self.matrices.iter().map(Param::val).collect(), arithmetic)
    }
}
