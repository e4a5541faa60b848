//! [`zeros`]: tensors of zeros, which a GPU's driver writes.

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Tensor};

use super::cuda;

/// Whether a device is a CUDA device, with autodiff or without.
pub fn is_cuda(device: &Device) -> bool {
    match device.as_dispatch() {
        DispatchDevice::Autodiff(inner) => matches!(**inner, DispatchDevice::Cube(_)),
        plain => matches!(plain, DispatchDevice::Cube(_)),
    }
}

/// Zeros outside of autodiff, in row-major order without gaps. A CUDA driver writes them: Burn would have a kernel for them,
/// which NVRTC compiles in every process for each type and width of its writes.
pub fn zeros<const D: usize>(shape: [usize; D], (device, dtype): (&Device, DType)) -> Tensor<D> {
    let device = device.clone().inner();
    if !is_cuda(&device) {
        return Tensor::zeros(shape, (&device, dtype));
    }
    // From a vector: the backend would pad the rows of a matrix.
    let flat = Tensor::<1>::empty([shape.iter().product::<usize>()], (&device, dtype));
    cuda::write_zeros(vec![flat.clone()]);
    flat.reshape(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the device is an autodiff's.
    #[test]
    fn zeros_are_outside_of_autodiff() {
        let device = Device::flex();
        for device in [device.clone(), device.autodiff()] {
            assert!(!is_cuda(&device));
            let tensor = zeros([3, 5], (&device, DType::BF16));
            assert_eq!((tensor.dims(), tensor.dtype(), tensor.is_autodiff()), ([3, 5], DType::BF16, false));
            assert!(tensor.cast(DType::F32).into_data().iter::<f32>().all(|value| value == 0.0));
        }
    }
}
