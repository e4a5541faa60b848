//! The matrix product that operators are made of, on each backend's fastest path.

use burn::backend::TensorMetadata;
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

/// cuBLASLt on Burn's own buffers and stream; without that library Burn's own product, which the row
/// then says.
impl Matmul for CubeBackend {
    fn matmul(lhs: Side<Self>, rhs: Side<Self>, dtype: DType, math: Fp32Math) -> FloatTensor<Self> {
        if cuda::has_blas(&lhs.tensor) {
            return cuda::matmul(lhs.into(), rhs.into(), cuda::Output::New(dtype), math);
        }
        assert!(
            lhs.tensor.dtype != DType::F32 || math == Fp32Math::Tf32,
            "fp32 products on CUDA need cuBLASLt, since Burn multiplies fp32 in TF32 there: install the CUDA \
             libraries, set LD_LIBRARY_PATH, or use precision.compute = \"tf32\""
        );
        composed(lhs, rhs, dtype)
    }

    fn matmul_add(
        sum: FloatTensor<Self>,
        lhs: Side<Self>,
        rhs: Side<Self>,
        math: Fp32Math,
    ) -> FloatTensor<Self> {
        if cuda::has_blas(&lhs.tensor) {
            return cuda::matmul(lhs.into(), rhs.into(), cuda::Output::AddTo(sum), math);
        }
        let dtype = sum.dtype;
        Self::float_add(sum, Self::matmul(lhs, rhs, dtype, math))
    }
}

impl From<Side<CubeBackend>> for cuda::Operand {
    fn from(side: Side<CubeBackend>) -> Self {
        Self { tensor: side.tensor, transposed: side.transposed }
    }
}

/// The CPU has no TF32: fp32 is exact whatever is asked for.
impl Matmul for Flex {
    fn matmul(lhs: Side<Self>, rhs: Side<Self>, dtype: DType, _math: Fp32Math) -> FloatTensor<Self> {
        composed(lhs, rhs, dtype)
    }

    fn matmul_add(
        sum: FloatTensor<Self>,
        lhs: Side<Self>,
        rhs: Side<Self>,
        _math: Fp32Math,
    ) -> FloatTensor<Self> {
        let dtype = sum.dtype();
        Self::float_add(sum, composed(lhs, rhs, dtype))
    }
}

/// Burn's own product, of operands widened to `dtype`: that gives the accumulator's precision.
fn composed<B: Backend>(lhs: Side<B>, rhs: Side<B>, dtype: DType) -> FloatTensor<B> {
    let widen = |side: Side<B>| {
        let tensor = match side.transposed {
            true => B::float_transpose(side.tensor),
            false => side.tensor,
        };
        if tensor.dtype() == dtype { tensor } else { B::float_cast(tensor, dtype.into()) }
    };
    B::float_matmul(widen(lhs), widen(rhs))
}
