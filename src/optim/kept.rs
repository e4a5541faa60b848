//! [`Kept`]: a value that training keeps between steps, as bytes that can be saved and read back.

use std::borrow::Cow;

use burn::tensor::{Tensor, TensorData};

/// A moment, a counter or a scale, by where it lies.
pub enum Kept<'a> {
    /// On the device.
    Tensor(&'a mut Tensor<1>),
    /// On the host.
    Bytes(&'a mut [u8]),
}

/// Sees each value with its name, to read it or to put another in its place.
pub type Visit<'v> = dyn FnMut(&str, Kept<'_>) + 'v;

impl Kept<'_> {
    /// The value as it lies in memory.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Tensor(tensor) => Cow::Owned(tensor.to_data().as_bytes().to_vec()),
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Puts another value of the same type and shape in its place.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn set(self, value: &[u8]) {
        match self {
            Self::Tensor(tensor) => {
                let (shape, dtype, device) = (tensor.dims(), tensor.dtype(), tensor.device());
                let data = TensorData::from_bytes_vec(value.to_vec(), shape, dtype);
                *tensor = Tensor::from_data(data, (&device, dtype));
            }
            Self::Bytes(bytes) => bytes.copy_from_slice(value),
        }
    }
}
