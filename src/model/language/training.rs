//! Training of a language model: the loss of a batch, whole or in the stages of a pipeline, and evaluation on text that it
//! has not seen.

use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor};

use super::stream::shared_rows;
use super::{Computation, Decoder, LmBatch};
use crate::device::cuda::Input;
use crate::measure::Evaluation;
use crate::model::architecture::Architecture;
use crate::model::{Inputs, Network, Output, Part};
use crate::ops::cross_entropy::{self, HeadArithmetic, divided_cross_entropy, linear_cross_entropy};
use crate::ops::segment::in_segments;
use crate::params::table::Table;
use crate::residence::Offloaded;
use crate::world::ProcessGroup;

/// Losses from what the head reads, its weight and the labels.
type Losses = fn(Tensor<2>, Tensor<2>, &Tensor<1, Int>, HeadArithmetic, &ProcessGroup) -> Tensor<1>;

impl Network for Decoder {
    type Batch = LmBatch;

    fn inputs(batch: &LmBatch) -> Option<Inputs> {
        let LmBatch { tokens, labels, total } = batch;
        let (source, pads) =
            tokens.source.as_ref().map_or((0, false), |source| (source.sequence, source.padding.is_some()));
        let depends = tokens.mask.starts.is_some() || tokens.virtual_rows.is_some() || pads;
        let integers = [tokens.ids.tensors(), tokens.positions.tensors()].into_iter().flatten();
        (!depends).then(|| Inputs {
            tensors: integers.chain([labels.clone()]).map(Input::Integer).collect(),
            form: vec![tokens.batch as u64, source as u64, tokens.sequence as u64, total.to_bits()],
        })
    }

    /// The sum of the tokens' losses over the step's total: the mean where the step is this batch.
    fn loss(&self, batch: &LmBatch) -> Tensor<1> {
        let table = self.shared_table();
        let x = self.embed(&batch.tokens, table.as_ref());
        self.loss_of(self.hidden_from(x, &batch.tokens, None), batch, table)
    }

    fn part(&self, part: &Part, batch: &LmBatch, x: Option<Tensor<2>>) -> Output {
        let context = self.context(&batch.tokens);
        let x = x.unwrap_or_else(|| self.embed(&batch.tokens, None));
        let first = self.rest.parts.blocks_before(part.blocks.start);
        let blocks = &self.modules.blocks[first..first + part.blocks.len()];
        let size = match context.computation.checkpoint.blocks {
            // One segment would be the part itself, which is computed again already.
            size if part.is_recomputed && size >= blocks.len() => 0,
            size => size,
        };
        let stream = context.stream.clone();
        let x = in_segments(blocks, size, x, move |block, x| block.forward(x, &context, None));
        if part.is_last {
            Output::Loss(self.loss_of(self.norm(x, stream), batch, None))
        } else {
            Output::Hidden(x)
        }
    }

    /// In the type of the residual stream: that of the embedding.
    fn between(&self, batch: &LmBatch) -> ([usize; 2], DType) {
        let (tokens, architecture) = (&batch.tokens, &self.rest.architecture);
        let rows = tokens.ids.ids.dims()[0] + shared_rows(architecture);
        ([rows, architecture.hidden_size], self.rest.table.entries[0].dtype)
    }

    /// The embedding where it is the head too.
    fn tied(&self) -> Option<String> {
        let Architecture { embedding, head, .. } = &*self.rest.architecture;
        (head.tied && self.modules.head.is_none()).then(|| format!("{}.weight", embedding.name))
    }

    fn parameters(&self) -> &Arc<Table> {
        &self.rest.table
    }

    fn offloaded(&self) -> Option<&Offloaded> {
        self.rest.offloaded.as_ref()
    }

    /// Mean loss and accuracy over the batch's counted tokens.
    fn evaluate(&self, batch: &LmBatch) -> (Evaluation, f64) {
        let sums = self.with_losses(batch, cross_entropy::evaluate);
        let [loss, right]: [f64; 2] =
            sums.into_data().iter::<f64>().collect::<Vec<_>>().try_into().expect("two sums");
        let total = batch.total.max(1.0);
        (Evaluation { loss: loss / total, accuracy: right / total, ..Evaluation::default() }, total)
    }
}

impl Decoder {
    /// The loss in nats of each token of a batch, of a network outside of autodiff; 0 where none counts.
    pub fn token_losses(&self, batch: &LmBatch) -> Vec<f32> {
        let losses = self.with_losses(batch, cross_entropy::losses);
        losses.into_data().try_into_vec().expect("losses are fp32")
    }

    /// What `compute` makes of the head's input, its weight and the labels, outside of autodiff.
    fn with_losses(&self, batch: &LmBatch, compute: Losses) -> Tensor<1> {
        let (hidden, head) = self.with_head(self.hidden(&batch.tokens, None), None);
        let ranks = &self.rest.ranks_of_head;
        compute(hidden.inner(), head.stored.inner(), &batch.labels, self.head_arithmetic(), ranks)
    }

    /// From what the head reads, [tokens, hidden_size], and the [`shared_table`](Self::shared_table).
    pub(super) fn loss_of(&self, hidden: Tensor<2>, batch: &LmBatch, table: Option<Tensor<2>>) -> Tensor<1> {
        let Computation { ops, checkpoint, .. } = self.rest.computation;
        let arithmetic = self.head_arithmetic();
        let ample = checkpoint.keeps_all() && self.rest.offloaded.is_none();
        let (hidden, head) = self.with_head(hidden, table);
        match &self.rest.ranks_of_head {
            ranks if ranks.size() > 1 => {
                divided_cross_entropy(hidden, head, &batch.labels, batch.total, arithmetic, ranks)
            }
            _ => linear_cross_entropy(hidden, head, &batch.labels, batch.total, arithmetic, ops.loss, ample),
        }
    }
}
