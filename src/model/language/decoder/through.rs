//! x through the blocks of a [`Decoder`], which the process has or which come for their turns.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::{Block, Cache, Context, Decoder};
use crate::ops::autocast::{autocast, region};
use crate::ops::segment::in_segments;
use crate::params::table::{Entry, Group};
use crate::residence::Compute;

impl Decoder {
    /// x through all blocks, wherever their weights live.
    pub(super) fn through(&self, x: Tensor<2>, context: Context, cache: Option<&mut Cache>) -> Tensor<2> {
        let Some(offloaded) = &self.rest.offloaded else {
            let blocks = &self.modules.blocks;
            let Some(cache) = cache else {
                let size = context.computation.checkpoint.blocks;
                return in_segments(blocks, size, x, move |block, x| block.forward(x, &context, None));
            };
            let cached = |x, (i, block): (usize, &Block)| block.forward(x, &context, Some(cache.layer(i)));
            return blocks.iter().enumerate().fold(x, cached);
        };
        let forward = self.rest.made_anew.0.clone();
        if let Some(cache) = cache {
            return offloaded.infer(x, |i, source, x| forward(i, source, x, &context, Some(cache.layer(i))));
        }
        let trains = |of: &dyn Fn(&Entry) -> bool| {
            self.rest.table.entries.iter().any(|entry| entry.trainable && of(entry))
        };
        let names = self.rest.architecture.block_names();
        let encoder = self.rest.architecture.encoder.map(|encoder| encoder.final_norm.0);
        let enters = |entry: &Entry| {
            entry.group == Group::Embedding || encoder.is_some_and(|norm| entry.name.starts_with(norm))
        };
        let embeds = self.modules.prompt.is_some() || trains(&enters);
        let in_blocks = trains(&|entry| names.find(&entry.name).is_some());
        let has_backward = x.device().is_autodiff() && (embeds || in_blocks);
        if !has_backward {
            // Nothing before the head is trained: no block comes back.
            let is_autodiff = x.device().is_autodiff();
            let y = offloaded.infer(x.inner(), |i, source, x| forward(i, source, x, &context, None));
            return if is_autodiff { y.autodiff() } else { y };
        }
        let x = match !embeds {
            // Gradients of blocks come with that of their input.
            true => x.require_grad(),
            false => x,
        };
        // Backward computes a block again after forward has left its autocast region.
        let region = region();
        let compute: Compute = Arc::new(move |i, source, x| {
            let _region = autocast(region);
            forward(i, source, x, &context, None)
        });
        offloaded.run(x, &compute)
    }
}
