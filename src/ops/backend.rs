//! Conversions between tensors whose backend is known only when the program runs and each backend's own
//! tensors. All but [`on_cuda`], [`has_blas`] and [`outside`] are for tensors outside of autodiff's graph.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DispatchKindConversion, DispatchTensor, Flex};
use burn::tensor::{Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

/// A tensor of the CUDA device, and the inverse.
pub use crate::device::cuda::{buffer as cube, tensor as uncube};
use crate::device::{cuda, is_cuda};

/// Whether a tensor lives on a CUDA device.
pub fn on_cuda<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_cuda(&tensor.device())
}

/// Whether cuBLASLt multiplies a tensor.
pub fn has_blas<const D: usize>(tensor: &Tensor<D>) -> bool {
    on_cuda(tensor) && cuda::has_blas(&cube(outside(tensor.clone())))
}

/// A tensor without its place in autodiff's graph.
pub fn outside<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.is_autodiff() { tensor.inner() } else { tensor }
}

/// Integers of the CUDA device.
pub fn cube_int<const D: usize>(tensor: &Tensor<D, Int>) -> CubeTensor {
    cuda::int_buffer(tensor.clone())
}

/// A tensor of the CPU.
pub fn flex<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    primitive::<Flex>(tensor.into_dispatch())
}

/// The inverse of [`flex`].
pub fn unflex<const D: usize>(tensor: FlexTensor) -> Tensor<D> {
    Tensor::from_primitive::<Flex>(tensor)
}

/// A tensor as the backend's own.
///
/// # Panics
/// When it is on another device.
pub fn primitive<B: Backend>(tensor: DispatchTensor) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    // The rank of a Burn tensor is a mark on its type alone.
    Tensor::<1>::from_dispatch(tensor)
        .try_into_primitive::<B>()
        .unwrap_or_else(|e| panic!("the inputs of an operator must be on one device: {e:?}"))
}
