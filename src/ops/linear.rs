//! The matrix product that operators are made of, on each backend's fastest path.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Backend, Flex, tensor::FloatTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;

use crate::device::cuda;
pub use crate::device::cuda::Fp32Math;

/// One side of a product, or its transpose, which is read in place.
pub struct Side<B: Backend> {
    tensor: FloatTensor<B>,
    transposed: bool,
}

/// The tensor as it is.
pub fn plain<B: Backend>(tensor: FloatTensor<B>) -> Side<B> {
    Side { tensor, transposed: false }
}

/// The tensor's transpose.
pub fn transpose<B: Backend>(tensor: FloatTensor<B>) -> Side<B> {
    Side { tensor, transposed: true }
}

/// Backends whose matrices can be multiplied.
pub trait Matmul: Backend {
    /// lhs · rhs of two matrices of one dtype, accumulated in fp32, as a new tensor of `dtype` (the
    /// operands' own, or fp32 for gradients and logits).
    ///
    /// # Panics
    /// When the shapes or dtypes do not fit.
    fn matmul(lhs: Side<Self>, rhs: Side<Self>, dtype: DType, math: Fp32Math) -> FloatTensor<Self>;

    /// sum + lhs · rhs, in the memory of `sum` where nobody else holds it.
    ///
    /// # Panics
    /// When the shapes or dtypes do not fit.
    fn matmul_add(
        sum: FloatTensor<Self>,
        lhs: Side<Self>,
        rhs: Side<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self>;
}

/// cuBLASLt on Burn's own buffers and stream.
impl Matmul for CubeBackend {
    fn matmul(lhs: Side<Self>, rhs: Side<Self>, dtype: DType, math: Fp32Math) -> FloatTensor<Self> {
        cuda::matmul(lhs.into(), rhs.into(), cuda::Output::New(dtype), math)
    }

    fn matmul_add(
        sum: FloatTensor<Self>,
        lhs: Side<Self>,
        rhs: Side<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self> {
        cuda::matmul(lhs.into(), rhs.into(), cuda::Output::AddTo(sum), math)
    }
}

impl From<Side<CubeBackend>> for cuda::Operand {
    fn from(side: Side<CubeBackend>) -> Self {
        Self { tensor: side.tensor, transposed: side.transposed }
    }
}

/// Burn's own product. The CPU has no TF32: fp32 is exact whatever is asked for.
impl Matmul for Flex {
    fn matmul(lhs: Side<Self>, rhs: Side<Self>, dtype: DType, _math: Fp32Math) -> FloatTensor<Self> {
        let widen = |side: Side<Self>| {
            let tensor = match side.transposed {
                true => Self::float_transpose(side.tensor),
                false => side.tensor,
            };
            // Widened operands give the accumulator's own precision.
            if tensor.dtype() == dtype { tensor } else { Self::float_cast(tensor, dtype.into()) }
        };
        Self::float_matmul(widen(lhs), widen(rhs))
    }

    fn matmul_add(
        sum: FloatTensor<Self>,
        lhs: Side<Self>,
        rhs: Side<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self> {
        let dtype = sum.dtype();
        Self::float_add(sum, Self::matmul(lhs, rhs, dtype, math))
    }
}
