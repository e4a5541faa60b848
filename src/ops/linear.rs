//! The matrix product that operators use, on each backend's fastest path.

mod composed;
mod cpu;
#[cfg(test)]
mod tests;

use std::ops::Range;

use burn::backend::{Backend, Flex, tensor::FloatTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;

use crate::device::cuda;
pub use crate::device::cuda::Fp32Math;

/// One side of a product, or its transpose, which is read in place: a matrix [rows, columns], or a
/// batch of them [batch, rows, columns].
#[derive(Clone)]
pub struct Side<B: Backend> {
    tensor: FloatTensor<B>,
    transposed: bool,
    /// `None`: all of them.
    rows: Option<Range<usize>>,
    columns: Option<Range<usize>>,
}

/// The tensor as it is.
pub fn plain<B: Backend>(tensor: FloatTensor<B>) -> Side<B> {
    Side { tensor, transposed: false, rows: None, columns: None }
}

/// The tensor's transpose, of each matrix of a batch.
pub fn transpose<B: Backend>(tensor: FloatTensor<B>) -> Side<B> {
    Side { transposed: true, ..plain(tensor) }
}

impl<B: Backend> Side<B> {
    /// These rows of every matrix, counted before the transposition, read in place.
    #[must_use]
    pub fn rows(self, rows: Range<usize>) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// These columns of every matrix, counted before the transposition, read in place.
    #[must_use]
    pub fn columns(self, columns: Range<usize>) -> Self {
        Self { columns: Some(columns), ..self }
    }
}

/// Where a product goes.
pub enum Output<B: Backend> {
    /// A new tensor of this dtype (the operands' own, or fp32 for gradients and logits): [m, n], or
    /// [batch, m, n].
    New(DType),
    /// Added to this tensor, in its memory where nobody else holds it.
    AddTo(FloatTensor<B>),
    /// Written into these rows of every matrix of this tensor, or added to them, in its memory where
    /// nobody else holds it. The result is the whole tensor.
    Into { tensor: FloatTensor<B>, rows: Range<usize>, accumulate: bool },
}

/// Backends whose matrices can be multiplied.
pub trait Matmul: Backend {
    /// lhs · rhs of two matrices, or of two batches of as many matrices, of one dtype, accumulated in
    /// fp32.
    ///
    /// # Panics
    /// When the shapes or dtypes do not fit.
    fn batch_matmul(
        lhs: Side<Self>,
        rhs: Side<Self>,
        output: Output<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self>;

    /// As [`batch_matmul`](Self::batch_matmul), plus `bias` [n], of the output's dtype, in every row of
    /// the product.
    ///
    /// # Panics
    /// When the shapes or dtypes do not fit.
    fn matmul_bias(
        lhs: Side<Self>,
        rhs: Side<Self>,
        bias: FloatTensor<Self>,
        output: Output<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self>;

    /// lhs · rhs as a new tensor of `dtype`.
    ///
    /// # Panics
    /// As [`batch_matmul`](Self::batch_matmul).
    fn matmul(lhs: Side<Self>, rhs: Side<Self>, dtype: DType, math: Fp32Math) -> FloatTensor<Self> {
        Self::batch_matmul(lhs, rhs, Output::New(dtype), math)
    }

    /// sum + lhs · rhs, in the memory of `sum` where nobody else holds it.
    ///
    /// # Panics
    /// As [`batch_matmul`](Self::batch_matmul).
    fn matmul_add(
        sum: FloatTensor<Self>,
        lhs: Side<Self>,
        rhs: Side<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self> {
        Self::batch_matmul(lhs, rhs, Output::AddTo(sum), math)
    }
}

/// cuBLASLt on Burn's own buffers and stream; without that library Burn's own product, and the row says so.
impl Matmul for CubeBackend {
    fn batch_matmul(
        lhs: Side<Self>,
        rhs: Side<Self>,
        output: Output<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self> {
        if has_blas(&lhs, math) {
            return cuda::matmul(view(lhs), view(rhs), output.into(), math);
        }
        composed::product(lhs, rhs, None, output)
    }

    fn matmul_bias(
        lhs: Side<Self>,
        rhs: Side<Self>,
        bias: FloatTensor<Self>,
        output: Output<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self> {
        if has_blas(&lhs, math) {
            return cuda::matmul_bias(view(lhs), view(rhs), bias, output.into(), math);
        }
        composed::product(lhs, rhs, Some(bias), output)
    }
}

/// Whether cuBLASLt multiplies; where it is missing, whether Burn can instead.
fn has_blas(lhs: &Side<CubeBackend>, math: Fp32Math) -> bool {
    let has = cuda::has_blas(&lhs.tensor);
    assert!(
        has || lhs.tensor.dtype != DType::F32 || math == Fp32Math::Tf32,
        "fp32 products on CUDA need cuBLASLt, since Burn multiplies fp32 in TF32 there: install the CUDA \
         libraries, set LD_LIBRARY_PATH, or use precision.compute = \"tf32\""
    );
    has
}

fn view(side: Side<CubeBackend>) -> cuda::View {
    let Side { tensor, transposed, rows, columns } = side;
    let view = cuda::View::from(cuda::Operand { tensor, transposed });
    let view = rows.into_iter().fold(view, cuda::View::rows);
    columns.into_iter().fold(view, cuda::View::columns)
}

impl From<Output<CubeBackend>> for cuda::Output {
    fn from(output: Output<CubeBackend>) -> Self {
        match output {
            Output::New(dtype) => Self::New(dtype),
            Output::AddTo(tensor) => Self::AddTo(tensor),
            Output::Into { tensor, rows, accumulate } => {
                Self::Into { tensor, rows, columns: None, accumulate }
            }
        }
    }
}

/// The CPU has no TF32: fp32 is exact whatever is asked for.
impl Matmul for Flex {
    fn batch_matmul(
        lhs: Side<Self>,
        rhs: Side<Self>,
        output: Output<Self>,
        _math: Fp32Math,
    ) -> FloatTensor<Self> {
        composed::product(lhs, rhs, None, output)
    }

    fn matmul_bias(
        lhs: Side<Self>,
        rhs: Side<Self>,
        bias: FloatTensor<Self>,
        output: Output<Self>,
        _math: Fp32Math,
    ) -> FloatTensor<Self> {
        composed::product(lhs, rhs, Some(bias), output)
    }
}
