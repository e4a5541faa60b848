//! Between Burn's tensors and the device memory behind them.

use burn::tensor::{Int, Shape, Tensor};
use burn_cubecl::Cube;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

const ELSEWHERE: &str = "the inputs of an operator must be on one device";

/// The memory of a tensor of a CUDA device that is outside of autodiff's graph.
pub fn buffer<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    tensor.try_into_primitive::<Cube>().unwrap_or_else(|e| panic!("{ELSEWHERE}: {e:?}"))
}

/// The same of integers.
pub fn int_buffer<const D: usize>(tensor: Tensor<D, Int>) -> CubeTensor {
    tensor.try_into_primitive::<Cube>().unwrap_or_else(|e| panic!("{ELSEWHERE}: {e:?}"))
}

/// The inverse of [`buffer`].
pub fn tensor<const D: usize>(buffer: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(buffer)
}

/// The inverse of [`int_buffer`].
pub fn int_tensor<const D: usize>(buffer: CubeTensor) -> Tensor<D, Int> {
    Tensor::from_primitive::<Cube>(buffer)
}

/// A tensor that may be written: `tensor` itself where nobody else holds it, else a copy, in row-major order
/// without gaps.
pub fn writable(tensor: CubeTensor) -> CubeTensor {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() {
        return tensor;
    }
    let CubeTensor { client, device, dtype, .. } = tensor.clone();
    let packed =
        |handle, shape| CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle, dtype);
    // CubeCL aligns the rows of what it makes; a vector has none.
    let flat = packed(tensor.handle.clone(), Shape::from([tensor.meta.num_elements()]));
    packed(flat.copy().handle, tensor.meta.shape().clone())
}
