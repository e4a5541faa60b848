//! [`through`]: the blocks of a network one after the other, wherever their weights live.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Cache, Computation, Tokens};
use crate::ops::attention::{Heads, Mask};
use crate::ops::autocast::{autocast, region};
use crate::ops::embedding::Ids;
use crate::ops::rope::Rotation;
use crate::params::source::Source;
use crate::residence::{Blocks, Compute, Placement};

/// What all blocks of a network compute with, besides their parameters and their input.
#[derive(Clone)]
pub struct Context<Config> {
    pub config: Config,
    pub computation: Computation,
    pub heads: Heads,
    pub mask: Mask,
    /// Of each token within its sample, [batch · sequence].
    pub positions: Ids,
    /// Where positions enter in every block.
    pub rotation: Option<Rotation>,
}

impl<Config: Clone> Context<Config> {
    pub fn new(
        config: &Config,
        computation: Computation,
        heads: Heads,
        tokens: &Tokens,
        rotation: Option<&Rotation>,
    ) -> Self {
        Self {
            config: config.clone(),
            computation,
            heads,
            mask: tokens.mask.clone(),
            positions: tokens.positions.clone(),
            rotation: rotation.cloned(),
        }
    }
}

/// The part of a network that is repeated.
pub trait Block: Module + Sized {
    type Config: Clone + Send + Sync + 'static;

    /// What the names of its parameters begin with, before the block's number.
    const PREFIX: &'static str;

    /// The block of this number.
    fn new(config: &Self::Config, block: usize, source: &Source) -> Self;

    /// [batch · sequence, hidden_size] → the same shape.
    fn forward(
        &self,
        block: usize,
        x: Tensor<2>,
        context: &Context<Self::Config>,
        cache: Option<&mut Cache>,
    ) -> Tensor<2>;
}

/// All blocks, on the device or on the host: one of the two is empty.
pub fn build<B: Block>(
    config: &B::Config,
    count: usize,
    source: &Source,
    placement: Option<Placement>,
) -> (Vec<B>, Option<Blocks>) {
    let make = |i| B::new(config, i, source);
    match placement.filter(|placement| placement.offload.moves()) {
        None => ((0..count).map(make).collect(), None),
        Some(placement) => (Vec::new(), Some(Blocks::new(placement, B::PREFIX, count, source, make))),
    }
}

/// x through all blocks.
pub fn through<B: Block>(
    resident: &[B],
    offloaded: Option<&Blocks>,
    x: Tensor<2>,
    context: Context<B::Config>,
    mut cache: Option<&mut Cache>,
) -> Tensor<2> {
    let built = |i, source: &Source, context: &Context<B::Config>| B::new(&context.config, i, source);
    match (offloaded, cache.is_some()) {
        (None, _) => resident
            .iter()
            .enumerate()
            .fold(x, |x, (i, block)| block.forward(i, x, &context, cache.as_deref_mut())),
        (Some(blocks), true) => blocks.infer(x, |i, source, x| {
            built(i, source, &context).forward(i, x, &context, cache.as_deref_mut())
        }),
        (Some(blocks), false) => {
            // Backward computes a block again after forward has left its autocast region.
            let region = region();
            let compute: Compute = Arc::new(move |i, source, x| {
                let _region = autocast(region);
                built(i, source, &context).forward(i, x, &context, None)
            });
            blocks.run(x, &compute)
        }
    }
}
