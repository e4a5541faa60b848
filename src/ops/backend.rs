//! Between tensors whose backend is known only when the program runs and each backend's own tensors.
//! All but the question where a tensor lives are for tensors outside of autodiff's graph.

use burn::backend::{Backend, DispatchKindConversion, DispatchTensor, DispatchTensorKind};
use burn::tensor::{Float, Int, Tensor};
use burn_cubecl::CubeBackend as Cube;
use burn_cubecl::tensor::CubeTensor;

/// Whether a tensor lives on a CUDA device.
pub fn on_cuda<const D: usize>(tensor: &Tensor<D>) -> bool {
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Autodiff(inner) => matches!(*inner, DispatchTensorKind::Cube(_)),
        kind => matches!(kind, DispatchTensorKind::Cube(_)),
    }
}

/// A tensor as its backend's own.
pub fn lower<B: Backend, const D: usize>(tensor: Tensor<D>) -> B::FloatTensorPrimitive
where
    DispatchTensor: DispatchKindConversion<B>,
{
    tensor
        .try_into_primitive::<B>()
        .unwrap_or_else(|e| panic!("the inputs of an operator must be on one device: {e:?}"))
}

/// The inverse of [`lower`].
pub fn lift<B: Backend, const D: usize>(tensor: B::FloatTensorPrimitive) -> Tensor<D>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    Tensor::<D, Float>::from_primitive::<B>(tensor)
}

/// A tensor of the CUDA device.
pub fn cube<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    lower::<Cube, D>(tensor)
}

/// Integers of the CUDA device.
pub fn cube_int<const D: usize>(tensor: &Tensor<D, Int>) -> CubeTensor {
    tensor
        .clone()
        .try_into_primitive::<Cube>()
        .unwrap_or_else(|e| panic!("the inputs of an operator must be on one device: {e:?}"))
}

/// The inverse of [`cube`].
pub fn uncube<const D: usize>(tensor: CubeTensor) -> Tensor<D> {
    lift::<Cube, D>(tensor)
}
