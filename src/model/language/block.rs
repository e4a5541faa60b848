//! [`Block`]: the part of a causal language model that is repeated, and the [`Context`] in which all of them compute.

use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;

use super::{Computation, LayerCache};
use crate::ops::attention::{Heads, Mask};
use crate::ops::embedding::Ids;
use crate::ops::rope::Rotation;
use crate::ops::tensor_parallel::copy_to_ranks;
use crate::ops::virtual_tokens::VirtualRows;
use crate::params::source::Source;
use crate::world::ProcessGroup;

/// The part of a network that is repeated.
pub trait Block: Module + ModuleDisplay + 'static {
    type Config: Clone + Send + Sync + 'static;

    /// The block whose parameters the source has.
    fn new(config: &Self::Config, source: &Source) -> Self;

    /// [batch · sequence, hidden_size] → the same shape.
    fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2>;
}

/// What all blocks of a network compute with, apart from their parameters and their input.
#[derive(Clone)]
pub struct Context {
    pub computation: Computation,
    pub heads: Heads,
    pub mask: Mask,
    /// Of each token within its sample, [batch · sequence].
    pub positions: Ids,
    /// Where positions enter in every block.
    pub rotation: Option<Rotation>,
    /// Which of the tokens are virtual.
    pub virtual_rows: Option<VirtualRows>,
    /// Those that layers are divided among.
    pub ranks: ProcessGroup,
}

impl Context {
    /// x, which layers read whose outputs divide among ranks.
    pub fn copied(&self, x: Tensor<2>) -> Tensor<2> {
        copy_to_ranks(x, &self.ranks)
    }
}
