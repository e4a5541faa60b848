//! [`Staging`]: how a batch's integers come to the device.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::cuda;
use crate::common::DeviceId;

/// Arrays on the host become tensors on the device.
pub enum Staging {
    /// Each by itself, from its own place.
    Plain(Device),
    /// All of them in one copy from page-locked memory.
    Pinned(Box<cuda::Staging>),
}

impl DeviceId {
    /// The CPU reads the host's memory as it is; only a GPU needs it page-locked.
    ///
    /// # Panics
    /// When the host cannot lock memory.
    pub fn staging(self, pinned: bool) -> Staging {
        match self {
            Self::Cuda(ordinal) if pinned => {
                let staging = cuda::Staging::new(cuda::Gpu::open(ordinal));
                Staging::Pinned(Box::new(staging.unwrap_or_else(|e| panic!("{e}"))))
            }
            _ => Staging::plain(&self.burn()),
        }
    }
}

impl Staging {
    /// Each array by itself.
    pub fn plain(device: &Device) -> Self {
        Self::Plain(device.clone())
    }

    /// # Panics
    /// When the device is out of memory.
    pub fn upload(&mut self, arrays: Vec<Vec<i32>>) -> Vec<Tensor<1, Int>> {
        match self {
            Self::Plain(device) => arrays.into_iter().map(|values| integers(values, device)).collect(),
            Self::Pinned(staging) => staging.upload(&arrays).unwrap_or_else(|e| panic!("{e}")),
        }
    }
}

/// A vector of 32-bit integers, which every device computes with.
pub fn integers(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), (device, DType::I32))
}
