//! The language-model head and its loss in one operator: logits = hWᵀ and the cross-entropy of each
//! token's label, without the logits ever existing whole.
//!
//! The vocabulary is walked in chunks. Forward keeps each token's running maximum and sum of
//! exponentials (Milakov and Gimelshein 2018), which give log Σ exp; backward computes the chunk's
//! logits again, and from them dlogits = (softmax − onehot) / total, dW of exactly this chunk and its part of
//! dh. A chunk's dW is one product over all tokens, so nothing is rounded between chunks; dh is summed
//! in fp32. Four products in place of three; tokens x chunk logits in fp32 at a time.
//!
//! A token's dlogits add up to 0, and the rows of a trained W have much in common. So most of a sum
//! dh = Σ dlogit · W[entry] cancels, and its rounding error is a hundred times as large a part of what remains.
//! In a pretrained network of 135 million weights one fp32 sum over the 49152 entries leaves all gradients below
//! the head 1e-4 off; sums of [`LONGEST_SUM`] entries, added afterwards, 4e-6 (both in the median).
//!
//! A negative label (PyTorch's -100) marks a token that is not counted.

mod cost;

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor, activation};

pub use cost::cost;

use super::backend::{cube, cube_int, on_cuda, uncube};
use super::cpu::{cross_entropy as cpu, integers};
use super::dense::{Arithmetic, Weight};
use super::function::custom;
use super::kernels::cross_entropy as kernels;
use super::kernels::sum::sum as kernel_sum;
use super::name::OperatorName;
use super::product::Fp32Math;
use super::product::{composed_product, plain, product, product_add, product_into, transpose};
use super::{Operator, narrow, wide};

/// Bytes of one chunk's fp32 logits. Their gradient in bf16 is half of it again.
pub const CHUNK_BYTES: usize = 192 << 20;

/// Entries that one product adds up to dh in exact fp32 on CUDA. The CPU's products add in blocks by
/// themselves, and other types round their operands by more than the sum.
const LONGEST_SUM: usize = 512;

/// Columns of a chunk: a multiple of 64, so that every chunk's rows lie aligned.
pub fn chunk(tokens: usize, vocab: usize) -> usize {
    (CHUNK_BYTES / (4 * tokens.max(1)) / 64 * 64).clamp(64, vocab.max(64))
}

/// Σ over counted tokens of −log softmax(hWᵀ)[label], divided by `total`, [1] in fp32. h is
/// [tokens, hidden], weight [vocab, hidden], labels [tokens].
///
/// `total` is the number of counted tokens of the whole step, so that the losses of micro-batches add
/// up to the mean over the step.
///
/// The products are in the type of the autocast region around the call, else in that of `arithmetic`.
pub fn linear_cross_entropy(
    h: Tensor<2>,
    weight: impl Into<Weight>,
    labels: &Tensor<1, Int>,
    total: f64,
    arithmetic: Arithmetic,
    operator: Operator,
) -> Tensor<1> {
    let (weight, arithmetic) = (weight.into(), arithmetic.in_region());
    if operator == Operator::Plain {
        let _scope = OperatorName::Loss.scope();
        return composed(h, weight.stored, labels.clone(), total, arithmetic);
    }
    let chunk = chunk(h.dims()[0], weight.stored.dims()[0]);
    let exact = arithmetic == Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let longest_sum = if exact && on_cuda(&h) { LONGEST_SUM } else { usize::MAX };
    chunked(h, weight, labels.clone(), total, arithmetic, chunk, longest_sum)
}

/// Over the counted tokens of a batch, outside of autodiff: the sum of their losses, and how many labels have
/// the largest logit of all tokens, [2] in fp32. As [`linear_cross_entropy`] otherwise.
pub fn evaluate(
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: &Tensor<1, Int>,
    arithmetic: Arithmetic,
) -> Tensor<1> {
    let arithmetic = arithmetic.in_region();
    let dtype = arithmetic.dtype;
    let chunk = chunk(h.dims()[0], weight.dims()[0]);
    let (h, weight) = (narrow(h, dtype), narrow(weight, dtype));
    let found = Head { h, weight, labels: labels.clone(), arithmetic, chunk, longest_sum: chunk }.look();
    let right = found.target.greater_equal(found.largest).float() * counted(labels);
    Tensor::cat(vec![sum(found.losses), sum(right)], 0)
}

/// The operator with chunks of this many of the vocabulary's entries, and products that add up at most
/// `longest_sum` of them to dh.
fn chunked(
    h: Tensor<2>,
    weight: Weight,
    labels: Tensor<1, Int>,
    total: f64,
    arithmetic: Arithmetic,
    chunk: usize,
    longest_sum: usize,
) -> Tensor<1> {
    let dtype = arithmetic.dtype;
    let Weight { stored, cast } = weight;
    custom(OperatorName::Loss, [h.into_dispatch(), stored.into_dispatch()], |[h, stored]| {
        let (h, stored) = (Tensor::<2>::from_dispatch(h), Tensor::<2>::from_dispatch(stored));
        let (h_dtype, weight_dtype) = (h.dtype(), stored.dtype());
        let weight = Weight { stored, cast }.narrow(dtype);
        let head = Head { h: narrow(h, dtype), weight, labels, arithmetic, chunk, longest_sum };
        let Found { losses, lse, logits, .. } = head.look();
        (sum(losses) / total, move |g: Tensor<1>, wanted| {
            let (dh, dweight) = head.backward(logits, lse, wide(g) / total, weight_dtype, wanted);
            [dh.map(|dh| narrow(dh, h_dtype).into_dispatch()), dweight.map(Tensor::into_dispatch)]
        })
    })
}

/// The same by Burn's operators, with the logits whole.
fn composed(
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: Tensor<1, Int>,
    total: f64,
    Arithmetic { dtype, math }: Arithmetic,
) -> Tensor<1> {
    let (h, weight) = (narrow(h, dtype), narrow(weight, dtype));
    let logits = wide(composed_product(OperatorName::Loss, h, weight.transpose(), math));
    let counted = labels.clone().greater_equal_elem(0);
    let picked = activation::log_softmax(logits, 1).gather(1, labels.clamp_min(0).unsqueeze_dim(1));
    let picked = picked.squeeze_dim::<1>(1).mask_fill(counted.bool_not(), 0.0);
    picked.sum() * (-1.0 / total)
}

/// The operands in the compute type.
struct Head {
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: Tensor<1, Int>,
    arithmetic: Arithmetic,
    /// Entries of the vocabulary at a time.
    chunk: usize,
    /// Entries that one product adds up to dh.
    longest_sum: usize,
}

/// What is known of each token after all chunks, [tokens] each, in fp32.
struct Found {
    /// 0 for tokens not counted.
    losses: Tensor<1>,
    /// log Σ exp(logits)
    lse: Tensor<1>,
    largest: Tensor<1>,
    /// The label's logit.
    target: Tensor<1>,
    /// On the CPU, where one chunk has them all: backward, which comes next, takes their place.
    logits: Option<Tensor<2>>,
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
    fn look(&self) -> Found {
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
            return Found { losses, lse, largest, target, logits: None };
        }
        let mut state = cpu::State::new(integers(&self.labels));
        let mut kept = None;
        for chunk in self.chunks() {
            let logits = self.logits(&chunk);
            state.observe(logits.clone(), chunk.start);
            kept = Some(logits).filter(|_| self.chunk >= self.weight.dims()[0]);
        }
        let [losses, lse, largest, target] = state.finish();
        Found { losses, lse, largest, target, logits: kept }
    }

    /// dh in fp32 and dW, from the logits where they were kept, each token's log Σ exp and the factor [1] of every
    /// token's loss.
    fn backward(
        self,
        mut logits: Option<Tensor<2>>,
        lse: Tensor<1>,
        factor: Tensor<1>,
        weight_dtype: DType,
        [want_h, want_weight]: [bool; 2],
    ) -> (Option<Tensor<2>>, Option<Tensor<2>>) {
        let Arithmetic { dtype, math } = self.arithmetic;
        let device = self.h.device();
        let mut dh: Option<Tensor<2>> = None;
        let is_whole = logits.is_some();
        let mut dweight =
            (want_weight && !is_whole).then(|| Tensor::empty(self.weight.dims(), (&device, weight_dtype)));
        for chunk in self.chunks() {
            let logits = logits.take().unwrap_or_else(|| self.logits(&chunk));
            let dlogits = chunk_gradient(logits, &lse, &self.labels, chunk.start, &factor, dtype);
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
            if want_weight && is_whole {
                dweight = Some(product(transpose(dlogits), plain(self.h.clone()), weight_dtype, math));
                break;
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
    narrow(cpu::gradient(logits, lse, &integers(labels), first, factor.clone().into_scalar()), dtype)
}

/// Σ x as [1]; Burn's own sum tries variants for seconds on CUDA.
fn sum(x: Tensor<1>) -> Tensor<1> {
    if on_cuda(&x) { uncube(kernel_sum(&cube(x))) } else { x.sum() }
}

/// 1 for tokens that count, 0 for the others.
fn counted(labels: &Tensor<1, Int>) -> Tensor<1> {
    labels.clone().greater_equal_elem(0).float()
}

#[cfg(test)]
mod tests;
