//! A decoder of which a process has some parts, the stages of a pipeline.

use std::collections::HashSet;

use burn::module::Module;
use burn::tensor::{DType, Tensor};

use super::{Block, Decoder, LmBatch, Tokens};
use crate::model::families::Family;
use crate::model::part::{Output, Part, Parts};
use crate::ops::parameters::each_parameter;
use crate::ops::segment::in_segments;
use crate::params::table::{Table, id};

/// What a rule of the recipe makes sure of: only a network's own parts are computed.
pub(super) const HERE: &str = "it is in this part of the network";

impl<F: Family> Decoder<F> {
    /// What a part makes of the output of the one before, or of the tokens: the next one's input, or the loss.
    pub(super) fn of_part(&self, part: &Part, batch: &LmBatch, x: Option<Tensor<2>>) -> Output {
        let context = self.context(&batch.tokens);
        let x = x.unwrap_or_else(|| self.embed(&batch.tokens));
        let first = self.rest.parts.blocks_before(part.blocks.start);
        let blocks = &self.modules.blocks[first..first + part.blocks.len()];
        let size = match context.computation.checkpoint.blocks {
            // One segment would be the part itself, which is computed again already.
            size if part.is_recomputed && size >= blocks.len() => 0,
            size => size,
        };
        let x = in_segments(blocks, size, x, move |block, x| block.forward(x, &context, None));
        if part.is_last { Output::Loss(self.loss_of(self.norm(x), batch)) } else { Output::Hidden(x) }
    }

    /// The shape of what goes from part to part, in the type that the residual stream has: that of the embedding.
    pub(super) fn between_parts(&self, tokens: &Tokens) -> ([usize; 2], DType) {
        let hidden = self.rest.outline.shape.hidden_size;
        ([tokens.batch * tokens.sequence, hidden], self.rest.table.entries[0].dtype)
    }

    /// The embedding where it is the head too.
    pub(super) fn tied_embedding(&self) -> Option<String> {
        let outline = &self.rest.outline;
        (outline.shape.tied && self.modules.head.is_none()).then(|| format!("{}.weight", outline.tokens))
    }
}

/// The entries of what a module has.
pub(super) fn retain<M: Module>(table: &mut Table, module: &M, parts: &Parts) {
    if *parts == Parts::Whole {
        return;
    }
    let mut here = HashSet::new();
    each_parameter(module, |id, _| _ = here.insert(id));
    table.entries.retain(|entry| here.contains(&id(&entry.name)));
}
