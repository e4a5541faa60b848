//! [`Filler`]: new tensors whose elements are written where they will live.

use std::ops::Range;

use burn::tensor::{DType, Device, Shape, Tensor, TensorData};

use super::cuda;
use crate::common::DeviceId;

/// Bytes that are copied to a GPU at a time: long enough that the copy engine runs at full rate.
const PIECE: usize = 32 << 20;

/// Makes tensors of one device.
pub enum Filler {
    Cpu(Device),
    Cuda(cuda::Uploader),
}

impl DeviceId {
    /// # Panics
    /// When the host has no page-locked memory to give.
    pub fn filler(self) -> Filler {
        match self {
            Self::Cpu => Filler::Cpu(self.burn()),
            Self::Cuda(ordinal) => {
                let uploader = cuda::Uploader::new(cuda::Gpu::open(ordinal), PIECE);
                Filler::Cuda(uploader.unwrap_or_else(|e| panic!("{e}")))
            }
        }
    }

    /// Makes a parameter of so many bytes. On a GPU a large one gets memory of its own.
    pub fn in_own_memory<T: Send>(self, bytes: usize, make: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Cpu => make(),
            Self::Cuda(ordinal) => cuda::Gpu::open(ordinal).in_own_memory(bytes, make),
        }
    }
}

impl Filler {
    /// A row-major tensor outside of autodiff. `fill` writes the bytes of a range of its elements.
    ///
    /// # Panics
    /// When the device is out of memory.
    pub fn tensor<const D: usize>(
        &mut self,
        shape: [usize; D],
        dtype: DType,
        fill: &dyn Fn(Range<usize>, &mut [u8]),
    ) -> Tensor<D> {
        match self {
            Self::Cpu(device) => {
                let elements = shape.iter().product::<usize>();
                let mut bytes = vec![0; elements * dtype.size()];
                fill(0..elements, &mut bytes);
                Tensor::from_data(TensorData::from_bytes_vec(bytes, shape, dtype), (&*device, dtype))
            }
            Self::Cuda(uploader) => {
                let tensor = uploader.tensor(Shape::from(shape), dtype, fill);
                cuda::tensor(tensor.unwrap_or_else(|e| panic!("{e}")))
            }
        }
    }
}
