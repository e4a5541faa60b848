//! What decides the algorithm of a matrix product: [`Problem`], and the [`Addresses`] of one.

use crate::common::Compute;
use burn::tensor::DType;
use serde::Serialize;

/// How fp32 operands are multiplied. The other types accumulate in fp32 in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Fp32Math {
    /// IEEE binary32 products and sums.
    Exact,
    /// Operands rounded to TF32 (10 bits of mantissa) on the tensor cores.
    Tf32,
}

impl Fp32Math {
    /// How fp32 tensors are multiplied under `compute`.
    pub fn of(compute: Compute) -> Self {
        if compute == Compute::Tf32 { Self::Tf32 } else { Self::Exact }
    }
}

/// One operand as it lies in memory: a batch of row-major matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Layout {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Elements from one matrix to the next; 0 when all products take the same one.
    pub batch_stride: usize,
    /// Whether the product takes the transpose of what lies in memory.
    pub transposed: bool,
    /// Bytes the address of every matrix is a multiple of, at most 256.
    pub alignment: u32,
}

/// What the product's kernel also does with a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Epilogue {
    None,
    /// Added to every row of the product; of the output's type, as long as a row.
    Bias,
}

/// What decides the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Problem {
    pub lhs: Layout,
    pub rhs: Layout,
    pub out: Layout,
    /// Products of one call, with matrices `batch_stride` apart.
    pub batch: usize,
    pub math: Fp32Math,
    /// Whether the product is added to a tensor that lies as `out` does: what `out` holds, or another one.
    pub accumulate: bool,
    pub epilogue: Epilogue,
}

impl Problem {
    /// Multiplications and additions of all products.
    pub fn flops(&self) -> f64 {
        let inner = if self.lhs.transposed { self.lhs.rows } else { self.lhs.columns };
        2.0 * [self.batch, self.out.rows, self.out.columns, inner]
            .map(|size| size as f64)
            .iter()
            .product::<f64>()
    }

    /// From the first element of the output to the last.
    pub fn out_bytes(&self) -> usize {
        let Layout { dtype, rows, columns, stride, batch_stride, .. } = self.out;
        ((self.batch - 1) * batch_stride + (rows - 1) * stride + columns) * dtype.size()
    }
}

/// Device addresses of a [`Problem`]'s first matrices, of its epilogue's vector (0 without one) and of
/// [`WORKSPACE`](super::WORKSPACE) bytes of scratch memory.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub lhs: u64,
    pub rhs: u64,
    pub out: u64,
    /// What the product is added to where it accumulates: `out`, or matrices with its layout.
    pub sum: u64,
    pub vector: u64,
    pub workspace: u64,
}
