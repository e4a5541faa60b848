//! Conversions between tensors whose backend is known only when the program runs and each backend's own
//! tensors. All but [`on_cuda`] are for tensors outside of autodiff's graph.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DispatchTensorKind, Flex};
use burn::tensor::{Int, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda;

/// Whether a tensor lives on a CUDA device.
pub fn on_cuda<const D: usize>(tensor: &Tensor<D>) -> bool {
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Autodiff(inner) => matches!(*inner, DispatchTensorKind::Cube(_)),
        kind => matches!(kind, DispatchTensorKind::Cube(_)),
    }
}

/// Backends that operators compute on.
pub trait Computes: Backend {
    /// A tensor as the backend's own.
    fn lower<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Self>;

    /// The inverse of [`lower`](Self::lower).
    fn lift<const D: usize>(tensor: FloatTensor<Self>) -> Tensor<D>;
}

impl Computes for Flex {
    fn lower<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Self> {
        tensor
            .try_into_primitive::<Self>()
            .unwrap_or_else(|e| panic!("the inputs of an operator must be on one device: {e:?}"))
    }

    fn lift<const D: usize>(tensor: FloatTensor<Self>) -> Tensor<D> {
        Tensor::from_primitive::<Self>(tensor)
    }
}

impl Computes for CubeBackend {
    fn lower<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
        cuda::buffer(tensor)
    }

    fn lift<const D: usize>(tensor: CubeTensor) -> Tensor<D> {
        cuda::tensor(tensor)
    }
}

/// A tensor of the CUDA device.
pub fn cube<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    cuda::buffer(tensor)
}

/// Integers of the CUDA device.
pub fn cube_int<const D: usize>(tensor: &Tensor<D, Int>) -> CubeTensor {
    cuda::int_buffer(tensor.clone())
}

/// The inverse of [`cube`].
pub fn uncube<const D: usize>(tensor: CubeTensor) -> Tensor<D> {
    cuda::tensor(tensor)
}
