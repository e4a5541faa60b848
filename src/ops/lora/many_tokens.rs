//! Products of many tokens with low-rank adapters by cuBLASLt: its blocks share what they read of A and B, which the
//! kernels read again for every few tokens.

use std::ops::Range;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::low_rank::{LowRanks, Of};
use crate::device::cuda::{Fp32Math, Operand, Output, empty, matmul};
use crate::ops::backend::{cube, uncube};

/// Multiplications of a layer from which cuBLASLt is faster. On an H200 forward and backward of two to six layers took, with
/// kernels and with cuBLASLt: 2,048 tokens of 576 to 1,536 columns and rank 8 as long, of 3,584 columns and rank 16 9.1 and
/// 7.1 ms, 16,384 tokens of 576 columns 20.4 and 9.4 ms, of 3,584 columns 74.7 and 58.5 ms.
const MANY: usize = 1 << 24;

/// Whether cuBLASLt multiplies so many tokens by a matrix [rank, columns] or its transpose.
pub fn are_many(tokens: usize, columns: usize, rank: usize) -> bool {
    tokens * columns * rank >= MANY
}

impl LowRanks {
    /// Masks are drawn by kernels alone, where they multiply.
    pub(super) fn suits_blas(&self, of: Of, wide: &CubeTensor) -> bool {
        let is_masked = of == Of::A && self.masks.is_some();
        !is_masked && are_many(wide.meta.shape()[0], self.columns(of), self.rank)
    }

    /// As [`down`](Self::down).
    pub(super) fn down_by_blas(&self, of: Of, wide: &CubeTensor, matrices: &[CubeTensor]) -> CubeTensor {
        let tokens = wide.meta.shape()[0];
        let mut low = empty(wide, [tokens, self.places.len() * self.rank], wide.dtype);
        for (layer, matrix) in matrices.iter().enumerate() {
            let lhs = plain(wide).columns(self.columns_of(of, layer));
            let rhs = Operand { tensor: matrix.clone(), transposed: of == Of::A };
            let columns = Some(self.ranks_of(layer));
            let output = Output::Into { tensor: low, rows: 0..tokens, columns, accumulate: false };
            low = matmul(lhs, rhs, output, Fp32Math::Exact);
        }
        if self.scale == 1.0 { low } else { cube(uncube::<2>(low) * self.scale) }
    }

    /// As [`up`](Self::up).
    pub(super) fn up_by_blas(
        &self,
        of: Of,
        mut wide: CubeTensor,
        low: &CubeTensor,
        matrices: &[CubeTensor],
    ) -> CubeTensor {
        let tokens = wide.meta.shape()[0];
        for (layer, matrix) in matrices.iter().enumerate() {
            let lhs = plain(low).columns(self.ranks_of(layer));
            let rhs = Operand { tensor: matrix.clone(), transposed: of == Of::B };
            let columns = Some(self.columns_of(of, layer));
            let output = Output::Into { tensor: wide, rows: 0..tokens, columns, accumulate: true };
            wide = matmul(lhs, rhs, output, Fp32Math::Exact);
        }
        wide
    }

    /// As [`gradient`](Self::gradient).
    pub(super) fn gradient_by_blas(
        &self,
        of: Of,
        wide: &CubeTensor,
        low: &CubeTensor,
        dtype: DType,
    ) -> Vec<CubeTensor> {
        let gradient = |layer| {
            let wide =
                |transposed| Operand { tensor: wide.clone(), transposed }.columns(self.columns_of(of, layer));
            let low = |transposed| Operand { tensor: low.clone(), transposed }.columns(self.ranks_of(layer));
            let (lhs, rhs) = if of == Of::A { (low(true), wide(false)) } else { (wide(true), low(false)) };
            matmul(lhs, rhs, Output::New(dtype), Fp32Math::Exact)
        };
        (0..self.places.len()).map(gradient).collect()
    }

    /// A layer's columns of `low`.
    fn ranks_of(&self, layer: usize) -> Range<usize> {
        layer * self.rank..(layer + 1) * self.rank
    }
}

fn plain(tensor: &CubeTensor) -> Operand {
    Operand { tensor: tensor.clone(), transposed: false }
}
