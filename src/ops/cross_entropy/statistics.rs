//! [`Statistics`]: the loss of each token on any backend, from chunks of the vocabulary.

use burn::tensor::{DType, Int, Tensor};

use super::counted;

/// What the chunks so far say of each token, [tokens] each, in fp32.
pub struct Statistics {
    /// The largest logit, Σ exp(logit − largest), and the label's logit.
    pub largest: Tensor<1>,
    sum: Tensor<1>,
    pub target: Tensor<1>,
}

impl Statistics {
    pub fn new(tokens: usize, like: &Tensor<2>) -> Self {
        let full = |value: f32| Tensor::full([tokens], value, (&like.device(), DType::F32));
        Self { largest: full(f32::MIN), sum: full(0.0), target: full(0.0) }
    }

    /// Takes the logits of the vocabulary's entries from `first` on.
    pub fn observe(&mut self, logits: Tensor<2>, labels: &Tensor<1, Int>, first: usize) {
        let largest = self.largest.clone().max_pair(logits.clone().max_dim(1).squeeze_dim(1));
        let sum = (logits.clone() - largest.clone().unsqueeze_dim(1)).exp().sum_dim(1).squeeze_dim(1);
        self.sum = self.sum.clone() * (self.largest.clone() - largest.clone()).exp() + sum;
        self.largest = largest;
        let (index, inside) = within(labels, first, logits.dims()[1]);
        let picked = logits.gather(1, index.unsqueeze_dim(1)).squeeze_dim::<1>(1);
        self.target = self.target.clone() + picked * inside;
    }

    /// log Σ exp(logits) of each token.
    pub fn lse(&self) -> Tensor<1> {
        self.sum.clone().log() + self.largest.clone()
    }

    /// Each token's loss, 0 for those not counted.
    pub fn losses(&self, labels: &Tensor<1, Int>) -> Tensor<1> {
        (self.lse() - self.target.clone()) * counted(labels)
    }
}

/// Each label's column in a chunk (0 where it lies outside), and 1 where it lies inside.
pub fn within(labels: &Tensor<1, Int>, first: usize, columns: usize) -> (Tensor<1, Int>, Tensor<1>) {
    let (first, columns) = (first as i64, columns as i64);
    let column = labels.clone() - first;
    let outside = column.clone().lower_elem(0).bool_or(column.clone().greater_equal_elem(columns));
    (column.mask_fill(outside.clone(), 0), outside.bool_not().float())
}
