//! [`Source`]: where a network's parameters come from, random numbers or a folder of weights.

use burn::module::{Param, ParamId};
use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};

use super::config::{NamedShape, WeightsFrom};
use crate::weights::{Dtype, Weights, WeightsError};

/// What a parameter is before training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Constant(f64),
    /// Normal with this standard deviation.
    Normal(f64),
}

/// Makes parameters by their Hugging Face names, on a device and in the type they are stored in.
pub struct Source<'a> {
    device: &'a Device,
    dtype: DType,
    /// `None`: random.
    weights: Option<Weights>,
}

impl<'a> Source<'a> {
    /// # Errors
    /// When the folder's weights are damaged or not those of the model.
    pub fn open(
        from: &WeightsFrom,
        expected: &[NamedShape],
        device: &'a Device,
        dtype: DType,
    ) -> Result<Self, WeightsError> {
        let weights = match from {
            WeightsFrom::Random => None,
            WeightsFrom::Folder(folder) => {
                let weights = Weights::open(folder)?;
                weights.check(expected)?;
                Some(weights)
            }
        };
        Ok(Self { device, dtype, weights })
    }

    /// The parameter of this name; `init` where it is not loaded.
    pub fn parameter<const D: usize>(&self, name: &str, shape: [usize; D], init: Init) -> Param<Tensor<D>> {
        let options = (self.device, self.dtype);
        let tensor = match (&self.weights, init) {
            (Some(weights), _) => {
                let view = weights.get(name).expect("checked when opened");
                let mut bytes = vec![0u8; view.elements() * self.dtype.size()];
                view.write_to(&mut bytes, stored(self.dtype)).expect("checked when opened");
                Tensor::from_data(TensorData::from_bytes_vec(bytes, shape, self.dtype), options)
            }
            (None, Init::Constant(value)) => Tensor::full(shape, value, options),
            (None, Init::Normal(deviation)) => {
                Tensor::random(shape, Distribution::Normal(0.0, deviation), options)
            }
        };
        Param::initialized(ParamId::new(), tensor.require_grad())
    }

    pub fn device(&self) -> &Device {
        self.device
    }
}

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}
