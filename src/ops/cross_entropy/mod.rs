//! The language-model head and its loss in one operator: logits = hWᵀ, which may be scaled and capped ([`Logits`]), and
//! the cross-entropy of each token's label, without the logits ever existing whole.
//!
//! On CUDA, products in types of two bytes take the tokens in chunks where their sizes allow it ([`tokens`]).
//! Otherwise the vocabulary is walked in chunks. Forward keeps each token's running maximum and sum of
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
//!
//! Where the vocabulary is divided among ranks ([`ranks`]), each walks over its own entries.

mod cost;
mod cpu;
pub mod cuda;
mod cuda_kernels;
mod logits;
pub mod loss;
mod ranks;
mod tokens;
mod vocabulary;

use burn::tensor::{DType, Int, Tensor, activation};
use burn_cubecl::tensor::CubeTensor;

pub use cost::cost;
#[cfg(test)]
pub use cost::is_at_once;
pub use logits::{HeadArithmetic, Logits};

use super::backend::{cube, cube_int, has_blas, on_cuda, uncube};
use super::dense::{Arithmetic, Weight};
use super::function::{Earlier, custom_adding};
use super::kernels::elementwise::scaled;
use super::kernels::sum::sum as kernel_sum;
use super::name::OperatorName;
use super::product::{Fp32Math, composed_product};
use super::tensor_parallel::copy_to_ranks;
use super::{Operator, narrow, rounded, wide};
use crate::world::ProcessGroup;
use tokens::Sums;
use vocabulary::{Found, Head};

/// Bytes of one chunk's fp32 logits. Their gradient in bf16 is half of it again.
const CHUNK_BYTES: usize = 192 << 20;

/// Entries that one product adds up to dh in exact fp32 on CUDA. The CPU's products add in blocks by
/// themselves, and other types round their operands by more than the sum.
const LONGEST_SUM: usize = 512;

/// Columns of a chunk: a multiple of 64, so that every chunk's rows lie aligned.
pub fn chunk(tokens: usize, vocab: usize) -> usize {
    (CHUNK_BYTES / (4 * tokens.max(1)) / 64 * 64).clamp(64, vocab.max(64))
}

/// Σ over counted tokens of −log softmax(logits)[label], divided by `total`, [1] in fp32. h is
/// [tokens, hidden], weight [vocab, hidden], labels [tokens].
///
/// `total` is the number of counted tokens of the whole step, so that the losses of micro-batches add
/// up to the mean over the step.
///
/// The products are in the type of the autocast region around the call, else in that of `head`. `ample`: all
/// results of products that backward needs stay in memory, so that the loss may take some of it too.
pub fn linear_cross_entropy(
    h: Tensor<2>,
    weight: impl Into<Weight>,
    labels: &Tensor<1, Int>,
    total: f64,
    head: impl Into<HeadArithmetic>,
    operator: Operator,
    ample: bool,
) -> Tensor<1> {
    let (weight, head) = (weight.into(), head.into().in_region());
    if operator == Operator::Plain {
        let _scope = OperatorName::Loss.scope();
        return composed(h, weight.stored, labels.clone(), total, head);
    }
    let chunk = chunk(h.dims()[0], weight.stored.dims()[0]);
    let exact = head.arithmetic == Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let longest_sum = if exact && on_cuda(&h) { LONGEST_SUM } else { usize::MAX };
    chunked(h, weight, (labels.clone(), total), (head, ample), [chunk, longest_sum], &ProcessGroup::alone())
}

/// As [`linear_cross_entropy`] with the custom operator, of a vocabulary that is divided among ranks: weight is the part
/// [vocab / ranks, hidden] of this one, and every rank has the same h and gets the same loss.
///
/// # Panics
/// With a [`Failure`](crate::world::Failure) where another rank does not come.
pub fn divided_cross_entropy(
    h: Tensor<2>,
    weight: impl Into<Weight>,
    labels: &Tensor<1, Int>,
    total: f64,
    head: impl Into<HeadArithmetic>,
    ranks: &ProcessGroup,
) -> Tensor<1> {
    let (h, weight) = (copy_to_ranks(h, ranks), weight.into());
    let chunk = chunk(h.dims()[0], weight.stored.dims()[0]);
    let head = (head.into().in_region(), false);
    chunked(h, weight, (labels.clone(), total), head, [chunk, usize::MAX], ranks)
}

/// Over the counted tokens of a batch, outside of autodiff: the sum of their losses, and how many labels have
/// the largest logit of all tokens, [2] in fp32. As [`linear_cross_entropy`] otherwise; weight is this rank's part where
/// there are `ranks`.
pub fn evaluate(
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: &Tensor<1, Int>,
    head: impl Into<HeadArithmetic>,
    ranks: &ProcessGroup,
) -> Tensor<1> {
    let found = found(h, weight, labels, head.into(), ranks);
    let right = found.target.greater_equal(found.largest).float() * counted(labels);
    Tensor::cat(vec![sum(found.losses), sum(right)], 0)
}

/// As [`evaluate`]: the loss of each token, [tokens] in fp32; 0 where it does not count.
pub fn losses(
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: &Tensor<1, Int>,
    head: impl Into<HeadArithmetic>,
    ranks: &ProcessGroup,
) -> Tensor<1> {
    found(h, weight, labels, head.into(), ranks).losses
}

/// What is known of each token of a batch, outside of autodiff.
fn found(
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: &Tensor<1, Int>,
    head: HeadArithmetic,
    ranks: &ProcessGroup,
) -> Found {
    let HeadArithmetic { arithmetic, logits } = head.in_region();
    let dtype = arithmetic.dtype;
    let chunk = chunk(h.dims()[0], weight.dims()[0]);
    let (h, weight) = (rounded(h, dtype), rounded(weight, dtype));
    let first = ranks.place() * weight.dims()[0];
    let labels_of = labels.clone();
    let head = Head { h, weight, first, labels: labels_of, arithmetic, logits, chunk, longest_sum: chunk };
    head.look().among(labels, ranks)
}

/// The operator with chunks of this many of the vocabulary's entries, and products that add up at most
/// `longest_sum` of them to dh.
fn chunked(
    h: Tensor<2>,
    weight: Weight,
    (labels, total): (Tensor<1, Int>, f64),
    (HeadArithmetic { arithmetic, logits }, ample): (HeadArithmetic, bool),
    [chunk, longest_sum]: [usize; 2],
    ranks: &ProcessGroup,
) -> Tensor<1> {
    let dtype = arithmetic.dtype;
    let Weight { stored, cast, .. } = weight;
    let inputs = [h.into_dispatch(), stored.into_dispatch()];
    custom_adding(OperatorName::Loss, inputs, |[h, stored], wanted| {
        let (h, stored) = (Tensor::<2>::from_dispatch(h), Tensor::<2>::from_dispatch(stored));
        let types = [h.dtype(), stored.dtype()];
        let weight = Weight::new(stored, cast).narrow(dtype);
        let first = ranks.place() * weight.dims()[0];
        let h = rounded(h, dtype);
        let head = Head { h, weight, first, labels, arithmetic, logits, chunk, longest_sum };
        let (differentiated, vocab) = (wanted.contains(&true), head.weight.dims()[0]);
        let whole = ranks.size() == 1;
        let narrow = wanted[1] && [dtype, types[1]] == [DType::BF16; 2];
        let dweight = Sums { narrow, ample: wanted[1] && ample };
        let chunks = chunks_of_tokens(&head, dweight).filter(|_| differentiated && whole);
        let (losses, kept) = match chunks {
            Some(chunks) => {
                let [h, weight] = [head.h, head.weight].map(cube);
                let gain = tokens::gain(dtype, total);
                let labels = cube_int(&head.labels);
                let made = tokens::forward([&h, &weight], &labels, logits, (chunks, gain), wanted);
                let dweight = made.dweight.map(|dweight| tokens::unpadded(dweight, vocab));
                let made_for = total * f64::from(gain);
                (uncube(made.losses), Kept::Gradients(Box::new([made.dh, dweight]), made_for))
            }
            None => {
                let Found { losses, lse, logits, .. } = head.look().among(&head.labels, ranks);
                (losses, Kept::Head(Box::new((head, lse, logits))))
            }
        };
        let backward = move |g: Tensor<1>, wanted, _: &mut Earlier<'_>| {
            let gradients = kept.gradients(wide(g), total, types, wanted);
            gradients.map(|gradient| gradient.map(Tensor::into_dispatch))
        };
        (sum(losses) / total, backward)
    })
}

/// What forward leaves for backward.
enum Kept {
    /// The operands, log Σ exp(logits) of each token, and the logits where they were kept.
    Head(Box<(Head, Tensor<1>, Option<Tensor<2>>)>),
    /// dh and dW for an upstream gradient of this much.
    Gradients(Box<[Option<CubeTensor>; 2]>, f64),
}

impl Kept {
    /// dh and dW as `types`, for the upstream gradient g [1] in fp32 of the losses' sum divided by `total`.
    fn gradients(
        self,
        g: Tensor<1>,
        total: f64,
        types: [DType; 2],
        wanted: [bool; 2],
    ) -> [Option<Tensor<2>>; 2] {
        match self {
            Self::Head(kept) => {
                let (head, lse, logits) = *kept;
                let [h_dtype, weight_dtype] = types;
                let (dh, dweight) = head.backward(logits, lse, g / total, weight_dtype, wanted);
                [dh.map(|dh| rounded(dh, h_dtype)), dweight]
            }
            Self::Gradients(gradients, made_for) => {
                let [dh, dweight] = *gradients;
                let factor = cube(g / made_for);
                let of = |gradient: Option<CubeTensor>, dtype| {
                    gradient.map(|gradient| uncube(scaled(gradient, &factor, dtype)))
                };
                [of(dh, types[0]), of(dweight, types[1])]
            }
        }
    }
}

/// The same by Burn's operators, with the logits whole.
fn composed(
    h: Tensor<2>,
    weight: Tensor<2>,
    labels: Tensor<1, Int>,
    total: f64,
    HeadArithmetic { arithmetic: Arithmetic { dtype, math }, logits }: HeadArithmetic,
) -> Tensor<1> {
    let (h, weight) = (narrow(h, dtype), narrow(weight, dtype));
    let logits = logits.composed(wide(composed_product(OperatorName::Loss, h, weight.transpose(), math)));
    let counted = labels.clone().greater_equal_elem(0);
    let picked = activation::log_softmax(logits, 1).gather(1, labels.clamp_min(0).unsqueeze_dim(1));
    let picked = picked.squeeze_dim::<1>(1).mask_fill(counted.bool_not(), 0.0);
    picked.sum() * (-1.0 / total)
}

/// How the tokens divide where they are taken in chunks.
fn chunks_of_tokens(head: &Head, dweight: Sums) -> Option<tokens::Chunks> {
    let sizes = || tokens::Chunks::of(head.h.dims()[0], head.weight.dims(), dweight);
    (head.arithmetic.dtype.size() == 2 && has_blas(&head.h)).then(sizes)?
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
