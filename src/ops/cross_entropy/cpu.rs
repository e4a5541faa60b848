//! The cross-entropy of rows of logits.

use burn::tensor::Tensor;
use cpu_kernels::softmax::{self, Seen};

use super::Logits;
use crate::ops::backend::unflex;
use crate::ops::slices::{buffer, numbers, tensor};

/// What is known of each token after some chunks of its logits.
pub struct State {
    labels: Vec<i64>,
    seen: Vec<Seen>,
}

impl State {
    pub fn new(labels: Vec<i64>) -> Self {
        Self { seen: vec![Seen::NOTHING; labels.len()], labels }
    }

    /// Takes the logits of the vocabulary's entries from `first` on.
    pub fn observe(&mut self, logits: Tensor<2>, first: usize) {
        let [_, columns] = logits.dims();
        softmax::observe(numbers(&buffer(logits)), columns, &self.labels, first, &mut self.seen);
    }

    /// Each token's loss, 0 for those not counted; log Σ exp(logits), the largest logit and the label's, [tokens].
    pub fn finish(self) -> [Tensor<1>; 4] {
        let lse = |seen: &Seen| seen.sum.ln() + seen.largest;
        let of_each =
            |value: &dyn Fn(&Seen) -> f32| tensor(self.seen.iter().map(value).collect(), [self.seen.len()]);
        let losses = self.seen.iter().zip(&self.labels);
        let losses = losses.map(|(seen, label)| if *label < 0 { 0.0 } else { lse(seen) - seen.target });
        let losses = tensor(losses.collect(), [self.seen.len()]);
        [losses, of_each(&lse), of_each(&|seen| seen.largest), of_each(&|seen| seen.target)]
    }
}

/// Logits of products, in their memory where nobody else holds it.
pub fn logits(products: Tensor<2>, Logits { scale, soft_cap }: Logits) -> Tensor<2> {
    let mut logits = buffer(products);
    softmax::logits(logits.storage_mut(), scale as f32, soft_cap.map(|cap| cap as f32));
    unflex(logits)
}

/// (exp(logits − lse) − onehot) · factor times the derivative of `form`, in the memory of the logits where nobody else
/// holds it, 0 for tokens not counted.
pub fn gradient(
    logits: Tensor<2>,
    lse: &Tensor<1>,
    (labels, first): (&[i64], usize),
    form: Logits,
    factor: f32,
) -> Tensor<2> {
    let [_, columns] = logits.dims();
    let (mut logits, lse) = (buffer(logits), buffer(lse.clone()));
    let (factor, soft_cap) = (factor * form.scale as f32, form.soft_cap.map(|cap| cap as f32));
    softmax::gradient(logits.storage_mut(), columns, (labels, first), numbers(&lse), factor, soft_cap);
    unflex(logits)
}
