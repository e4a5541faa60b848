//! The loss in chunks of the vocabulary, whose logits are computed again in backward.

use std::ops::Range;

use burn::tensor::{DType, IndexingUpdateOp, Int, Tensor};

use super::counted;
use crate::ops::backend::{cube, cube_int, on_cuda, uncube};
use crate::ops::dense::Arithmetic;
use crate::ops::kernels::cross_entropy as kernels;
use crate::ops::kernels::launch::empty;
use crate::ops::narrow;
use crate::ops::product::{plain, product, product_add, product_into, transpose};

/// The operands in the compute type.
pub struct Head {
    pub h: Tensor<2>,
    pub weight: Tensor<2>,
    pub labels: Tensor<1, Int>,
    pub arithmetic: Arithmetic,
    /// Entries of the vocabulary at a time.
    pub chunk: usize,
    /// Entries that one product adds up to dh.
    pub longest_sum: usize,
}

/// What is known of each token after all chunks, [tokens] each, in fp32.
pub struct Found {
    /// 0 for tokens not counted.
    pub losses: Tensor<1>,
    /// log Σ exp(logits)
    pub lse: Tensor<1>,
    pub largest: Tensor<1>,
    /// The label's logit.
    pub target: Tensor<1>,
}

impl Head {
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (vocab, size) = (self.weight.dims()[0], self.chunk);
        (0..vocab).step_by(size).map(move |first| first..vocab.min(first + size))
    }

    /// The parts of a chunk that are added up by a product each.
    fn sums(&self, chunk: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, longest) = (chunk.end, self.longest_sum);
        chunk.clone().step_by(longest).map(move |first| first..end.min(first.saturating_add(longest)))
    }

    /// [tokens, chunk] in fp32.
    fn logits(&self, chunk: &Range<usize>) -> Tensor<2> {
        let rows = transpose(self.weight.clone()).rows(chunk.clone());
        product(plain(self.h.clone()), rows, DType::F32, self.arithmetic.math)
    }

    /// Walks over the vocabulary.
    pub fn look(&self) -> Found {
        let [tokens, _] = self.h.dims();
        if on_cuda(&self.h) {
            let labels = cube_int(&self.labels);
            let mut state = kernels::LossState::new(&cube(self.h.clone()), tokens);
            for chunk in self.chunks() {
                kernels::observe_chunk(&cube(self.logits(&chunk)), &labels, chunk.start, &mut state);
            }
            let (losses, lse) = kernels::token_losses(&state, &labels);
            let kernels::LossState { maximum, target, .. } = state;
            let [losses, lse, largest, target] = [losses, lse, maximum, target].map(uncube);
            return Found { losses, lse, largest, target };
        }
        let full = |value: f32| Tensor::full([tokens], value, (&self.h.device(), DType::F32));
        // Of the chunks so far: the largest logit, Σ exp(logit − largest), and the label's logit.
        let (mut largest, mut sum, mut target) = (full(f32::MIN), full(0.0), full(0.0));
        for chunk in self.chunks() {
            let logits = self.logits(&chunk);
            let before = largest.clone();
            largest = largest.max_pair(logits.clone().max_dim(1).squeeze_dim(1));
            let more = (logits.clone() - largest.clone().unsqueeze_dim(1)).exp().sum_dim(1).squeeze_dim(1);
            sum = sum * (before - largest.clone()).exp() + more;
            let (index, inside) = within(&self.labels, chunk.start, chunk.len());
            let picked = logits.gather(1, index.unsqueeze_dim(1)).squeeze_dim::<1>(1);
            target = target + picked * inside;
        }
        let lse = sum.log() + largest.clone();
        let losses = (lse.clone() - target.clone()) * counted(&self.labels);
        Found { losses, lse, largest, target }
    }

    /// dh in fp32 and dW, from each token's log Σ exp and the factor [1] of every token's loss.
    pub fn backward(
        self,
        lse: Tensor<1>,
        factor: Tensor<1>,
        weight_dtype: DType,
        [want_h, want_weight]: [bool; 2],
    ) -> (Option<Tensor<2>>, Option<Tensor<2>>) {
        let Arithmetic { dtype, math } = self.arithmetic;
        let mut dh: Option<Tensor<2>> = None;
        let mut dweight = want_weight.then(|| unwritten(self.weight.dims(), weight_dtype, &self.h));
        for chunk in self.chunks() {
            let dlogits =
                chunk_gradient(self.logits(&chunk), &lse, &self.labels, chunk.start, &factor, dtype);
            let parts = want_h.then(|| self.sums(&chunk));
            for entries in parts.into_iter().flatten() {
                let columns = entries.start - chunk.start..entries.end - chunk.start;
                let (lhs, rhs) =
                    (plain(dlogits.clone()).columns(columns), plain(self.weight.clone()).rows(entries));
                dh = Some(match dh {
                    None => product(lhs, rhs, DType::F32, math),
                    Some(sum) => product_add(sum, lhs, rhs, math),
                });
            }
            dweight = dweight.map(|dweight| {
                let (lhs, rhs) = (transpose(dlogits), plain(self.h.clone()));
                product_into(dweight, chunk, false, lhs, rhs, math)
            });
        }
        (dh, dweight)
    }
}

/// (exp(logits − lse) − onehot) · factor, 0 for tokens not counted, as `dtype`.
fn chunk_gradient(
    logits: Tensor<2>,
    lse: &Tensor<1>,
    labels: &Tensor<1, Int>,
    first: usize,
    factor: &Tensor<1>,
    dtype: DType,
) -> Tensor<2> {
    if on_cuda(&logits) {
        let (lse, labels, factor) = (cube(lse.clone()), cube_int(labels), cube(factor.clone()));
        return uncube(kernels::chunk_gradient(cube(logits), &lse, &labels, first, &factor, dtype));
    }
    let [_, columns] = logits.dims();
    let factor = counted(labels) * factor.clone();
    let softmax = (logits - lse.clone().unsqueeze_dim(1)).exp() * factor.clone().unsqueeze_dim(1);
    let (index, inside) = within(labels, first, columns);
    let onehot = (inside * factor * -1.0).unsqueeze_dim(1);
    narrow(softmax.scatter(1, index.unsqueeze_dim(1), onehot, IndexingUpdateOp::Add), dtype)
}

/// A matrix on the device of `like`. Burn would align its rows on CUDA, and products would pack them.
fn unwritten(dims: [usize; 2], dtype: DType, like: &Tensor<2>) -> Tensor<2> {
    match on_cuda(like) {
        true => uncube(empty(&cube(like.clone()), dims, dtype)),
        false => Tensor::empty(dims, (&like.device(), dtype)),
    }
}

/// Each label's column in a chunk (0 where it lies outside), and 1 where it lies inside.
fn within(labels: &Tensor<1, Int>, first: usize, columns: usize) -> (Tensor<1, Int>, Tensor<1>) {
    let (first, columns) = (first as i64, columns as i64);
    let column = labels.clone() - first;
    let outside = column.clone().lower_elem(0).bool_or(column.clone().greater_equal_elem(columns));
    (column.mask_fill(outside.clone(), 0), outside.bool_not().float())
}
