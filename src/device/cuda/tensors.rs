//! Between Burn's tensors and the device memory behind them.

use std::hint::spin_loop;

use burn::tensor::{DType, Int, Shape, Tensor};
use burn_cubecl::Cube;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

const ELSEWHERE: &str = "the inputs of an operator must be on one device";
/// How often the host asks before it copies, within some microseconds: for about one of them CubeCL's thread also holds the
/// memory that it allocates.
const ASKED: usize = 50;

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

/// A new tensor on the device of `like`, in row-major order without gaps.
pub fn empty(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), dtype)
}

/// The sizes of a tensor of `D` dimensions.
pub fn sizes<const D: usize>(tensor: &CubeTensor, name: &str) -> [usize; D] {
    let shape = tensor.meta.shape();
    assert_eq!(shape.num_dims(), D, "{name} has {D} dimensions, not the shape {shape:?}");
    std::array::from_fn(|i| shape[i])
}

/// A matrix whose rows have no gaps between their elements: `matrix` itself where it is one, else a copy. Rows may be
/// further apart than they are long.
pub fn by_rows(matrix: CubeTensor) -> CubeTensor {
    if matrix.meta.strides()[1] == 1 { matrix } else { into_contiguous(matrix) }
}

/// A row-major tensor of this shape and type in the memory of `whole`, from the byte `start` on, without a copy.
///
/// # Panics
/// When it does not lie within that memory.
pub fn within(whole: &CubeTensor, start: usize, shape: Shape, dtype: DType) -> CubeTensor {
    let (start, length) = (start as u64, (shape.num_elements() * dtype.size()) as u64);
    // Burn rounds the sizes of its buffers up.
    let behind = whole.handle.size_in_used().checked_sub(start + length);
    let behind = behind.expect("a part lies within its buffer");
    let handle = whole.handle.clone().offset_start(start).offset_end(behind);
    CubeTensor::new_contiguous(whole.client.clone(), whole.device.clone(), shape, handle, dtype)
}

/// A tensor that may be written: `tensor` itself where nobody else holds it, else a copy, in row-major order
/// without gaps.
pub fn writable(tensor: CubeTensor) -> CubeTensor {
    let tensor = into_contiguous(tensor);
    for _ in 0..ASKED {
        if tensor.can_mut() {
            return tensor;
        }
        spin_loop();
    }
    let CubeTensor { client, device, dtype, .. } = tensor.clone();
    let packed =
        |handle, shape| CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle, dtype);
    // CubeCL aligns the rows of what it makes; a vector has none.
    let flat = packed(tensor.handle.clone(), Shape::from([tensor.meta.num_elements()]));
    packed(flat.copy().handle, tensor.meta.shape().clone())
}
