//! Training a language model: the loss of a batch, and evaluation on text it has not seen.

use burn::tensor::Tensor;

use super::{Computation, LanguageNetwork, LmBatch};
use crate::measure::Evaluation;
use crate::model::Network;
use crate::ops::autocast::weight;
use crate::ops::cross_entropy::{self, linear_cross_entropy};
use crate::residence::Blocks;

impl<N: LanguageNetwork> Network for N {
    type Batch = LmBatch;

    /// The sum of the tokens' losses over the step's total: the mean where the step is this batch.
    fn loss(&self, batch: &LmBatch) -> Tensor<1> {
        let Computation { arithmetic, ops, .. } = *self.computation();
        let hidden = self.hidden(&batch.tokens, None);
        let head = weight(self.head());
        linear_cross_entropy(hidden, head, &batch.labels, batch.total, arithmetic, ops.loss)
    }

    fn offloaded(&self) -> Option<&Blocks> {
        LanguageNetwork::offloaded(self)
    }

    /// Mean loss and accuracy over the batch's counted tokens.
    fn evaluate(&self, batch: &LmBatch) -> Evaluation {
        let hidden = self.hidden(&batch.tokens, None).inner();
        let head = self.head().val().inner();
        let sums = cross_entropy::evaluate(hidden, head, &batch.labels, self.computation().arithmetic);
        let [loss, right]: [f64; 2] =
            sums.into_data().iter::<f64>().collect::<Vec<_>>().try_into().expect("two sums");
        let total = batch.total.max(1.0);
        Evaluation { loss: loss / total, accuracy: right / total, ..Evaluation::default() }
    }
}
