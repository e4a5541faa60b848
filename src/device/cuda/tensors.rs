//! Between Burn's tensors and the device memory behind them.
//!
//! With the feature `fusion` Burn's operators are not launched at once: they wait in a queue for others
//! that one kernel can compute with them, and a tensor is the promise of a result. Before a
//! tensor's memory is used the queue is issued; memory that is given to Burn becomes a promise already kept.

use burn::tensor::{Int, Shape, Tensor};
use burn_cubecl::Cube;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

pub(super) use queue::issue;
use queue::{promise, resolve};

/// Whether Burn joins operators into one kernel; it decides so when it is compiled.
pub const FUSED: bool = cfg!(feature = "fusion");

const ELSEWHERE: &str = "the inputs of an operator must be on one device";

/// The memory of a tensor of a CUDA device that is outside of autodiff's graph. What the tensor is
/// computed from has been issued.
pub fn buffer<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    resolve(tensor.try_into_primitive::<Cube>().unwrap_or_else(|e| panic!("{ELSEWHERE}: {e:?}")))
}

/// The same of integers.
pub fn int_buffer<const D: usize>(tensor: Tensor<D, Int>) -> CubeTensor {
    resolve(tensor.try_into_primitive::<Cube>().unwrap_or_else(|e| panic!("{ELSEWHERE}: {e:?}")))
}

/// The inverse of [`buffer`].
pub fn tensor<const D: usize>(buffer: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(promise(buffer))
}

/// The inverse of [`int_buffer`].
pub fn int_tensor<const D: usize>(buffer: CubeTensor) -> Tensor<D, Int> {
    Tensor::from_primitive::<Cube>(promise(buffer))
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

#[cfg(not(feature = "fusion"))]
mod queue {
    use burn_cubecl::CubeDevice;
    use burn_cubecl::tensor::CubeTensor;

    /// Without fusion nothing waits.
    pub fn issue(_device: &CubeDevice) {}

    pub fn resolve(tensor: CubeTensor) -> CubeTensor {
        tensor
    }

    pub fn promise(buffer: CubeTensor) -> CubeTensor {
        buffer
    }
}

#[cfg(feature = "fusion")]
mod queue {
    use burn::tensor::StreamId;
    use burn_cubecl::fusion::FusionCubeRuntime;
    use burn_cubecl::tensor::CubeTensor;
    use burn_cubecl::{CubeBackend, CubeDevice};
    use burn_fusion::{FusionTensor, NoOp, get_client};
    use burn_ir::{InitOperationIr, OperationIr, OperationOutput};

    type Promise = FusionTensor<FusionCubeRuntime>;

    /// Launches what waits on this thread's stream. The host does not wait for the device.
    pub fn issue(device: &CubeDevice) {
        get_client::<CubeBackend>(device).sync(|| ());
    }

    /// Of any type of elements. The last promise of a tensor gives up its memory, which may then be
    /// written in place.
    pub fn resolve(tensor: Promise) -> CubeTensor {
        tensor.client.clone().resolve_tensor_float::<CubeBackend>(tensor)
    }

    pub fn promise(buffer: CubeTensor) -> Promise {
        let client = get_client::<CubeBackend>(&buffer.device);
        let (shape, dtype) = (buffer.meta.shape().clone(), buffer.dtype);
        let made = InitOperationIr::create(shape, dtype, || client.register_tensor_handle(buffer.into()));
        client.register(StreamId::current(), OperationIr::Init(made), NoOp::<CubeBackend>::new()).output()
    }
}
