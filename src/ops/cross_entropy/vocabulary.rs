//! The loss in chunks of the vocabulary, whose logits are computed again in backward.

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};

use super::logits::Logits;
use super::tokens::parts;
use crate::ops::backend::{cube, cube_int, on_cuda, uncube};
use crate::ops::cross_entropy::cpu;
use crate::ops::cross_entropy::cuda as kernels;
use crate::ops::dense::Arithmetic;
use crate::ops::product::{plain, product, product_add, product_into, transpose};
use crate::ops::slices::integers;
use crate::ops::{narrow, unwritten};

/// The operands in the compute type.
pub struct Head {
    pub h: Tensor<2>,
    pub weight: Tensor<2>,
    /// The weight's first row among the vocabulary's entries.
    pub first: usize,
    pub labels: Tensor<1, Int>,
    pub arithmetic: Arithmetic,
    pub logits: Logits,
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
    /// On the CPU, where one chunk has them all: backward, which comes next, takes their place.
    pub logits: Option<Tensor<2>>,
}

impl Head {
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        parts(0..self.weight.dims()[0], self.chunk)
    }

    /// [tokens, chunk] in fp32.
    fn products(&self, chunk: &Range<usize>) -> Tensor<2> {
        let rows = transpose(self.weight.clone()).rows(chunk.clone());
        product(plain(self.h.clone()), rows, DType::F32, self.arithmetic.math)
    }

    /// The same on the CPU as logits; CUDA's kernels make them as they read.
    fn logits(&self, chunk: &Range<usize>) -> Tensor<2> {
        self.logits.apply(self.products(chunk))
    }

    /// Walks over the vocabulary.
    pub fn look(&self) -> Found {
        let [tokens, _] = self.h.dims();
        if on_cuda(&self.h) {
            let labels = cube_int(&self.labels);
            let mut state = kernels::LossState::new(&cube(self.h.clone()), tokens);
            for chunk in self.chunks() {
                let first = self.first + chunk.start;
                let products = cube(self.products(&chunk));
                kernels::observe_chunk(&products, &labels, first, self.logits, &mut state);
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
            state.observe(logits.clone(), self.first + chunk.start);
            kept = Some(logits).filter(|_| self.chunk >= self.weight.dims()[0]);
        }
        let [losses, lse, largest, target] = state.finish();
        Found { losses, lse, largest, target, logits: kept }
    }

    /// dh in fp32 and dW, from the logits where they were kept, each token's log Σ exp and the factor [1] of every
    /// token's loss.
    pub fn backward(
        self,
        mut logits: Option<Tensor<2>>,
        lse: Tensor<1>,
        factor: Tensor<1>,
        weight_dtype: DType,
        [want_h, want_weight]: [bool; 2],
    ) -> (Option<Tensor<2>>, Option<Tensor<2>>) {
        let math = self.arithmetic.math;
        let mut dh: Option<Tensor<2>> = None;
        let is_whole = logits.is_some();
        let mut dweight =
            (want_weight && !is_whole).then(|| unwritten(self.weight.dims(), weight_dtype, &self.h));
        for chunk in self.chunks() {
            let dlogits = self.chunk_gradient(logits.take(), &lse, &chunk, &factor);
            let sums = want_h.then(|| parts(chunk.clone(), self.longest_sum));
            for entries in sums.into_iter().flatten() {
                let columns = entries.start - chunk.start..entries.end - chunk.start;
                let (lhs, rhs) =
                    (plain(dlogits.clone()).columns(columns), plain(self.weight.clone()).rows(entries));
                dh = Some(product_add(dh, lhs, rhs, DType::F32, math));
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

    /// By the products of h and a chunk of the weight, in the compute type, from the chunk's logits where they were kept:
    /// (exp(logits − lse) − onehot) · factor, times the logits' derivative; 0 for tokens not counted.
    fn chunk_gradient(
        &self,
        logits: Option<Tensor<2>>,
        lse: &Tensor<1>,
        chunk: &Range<usize>,
        factor: &Tensor<1>,
    ) -> Tensor<2> {
        let (first, dtype) = (self.first + chunk.start, self.arithmetic.dtype);
        if on_cuda(&self.h) {
            let (lse, labels, factor) = (cube(lse.clone()), cube_int(&self.labels), cube(factor.clone()));
            let (products, labels) = (cube(self.products(chunk)), (&labels, first));
            return uncube(kernels::chunk_gradient(products, &lse, labels, self.logits, &factor, dtype));
        }
        let logits = logits.unwrap_or_else(|| self.logits(chunk));
        let (labels, factor) = (integers(&self.labels), factor.clone().into_scalar());
        narrow(cpu::gradient(logits, lse, (&labels, first), self.logits, factor), dtype)
    }
}
