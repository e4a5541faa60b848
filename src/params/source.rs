//! [`Source`]: where a network's parameters come from: random numbers, a folder of weights, or tensors
//! that are there already.

use std::cell::RefCell;
use std::ops::Range;

use burn::backend::DispatchTensor;
use burn::module::{Param, ParamId};
use burn::tensor::{DType, Device, Distribution, Tensor};

use super::{NamedShape, WeightsFrom};
use crate::device::{DeviceId, Filler};
use crate::params::weights::{Dtype, View, Weights, WeightsError};

/// What a parameter is before training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Constant(f64),
    /// Normal with this standard deviation.
    Normal(f64),
}

/// Makes parameters by their Hugging Face names, on a device and in the type they are stored in.
pub struct Source {
    /// On autodiff.
    device: Device,
    dtype: DType,
    origin: Origin,
}

enum Origin {
    Random,
    Files(Box<Files>),
    /// By a parameter's name.
    Given(Box<dyn Fn(&str) -> DispatchTensor>),
}

struct Files {
    weights: Weights,
    filler: RefCell<Filler>,
}

impl Source {
    /// # Errors
    /// When the folder's weights are damaged or not those of the model.
    pub fn open(
        from: &WeightsFrom,
        expected: &[NamedShape],
        device: DeviceId,
        dtype: DType,
    ) -> Result<Self, WeightsError> {
        let origin = match from {
            WeightsFrom::Random => Origin::Random,
            WeightsFrom::Folder(folder) => {
                let weights = Weights::open(folder)?;
                weights.check(expected)?;
                Origin::Files(Box::new(Files { weights, filler: RefCell::new(device.filler()) }))
            }
        };
        Ok(Self { device: device.burn().autodiff(), dtype, origin })
    }

    /// Hands out the tensors that `give` has, as they are: tracked by autodiff or not.
    pub fn given(device: &Device, dtype: DType, give: impl Fn(&str) -> DispatchTensor + 'static) -> Self {
        Self { device: device.clone().autodiff(), dtype, origin: Origin::Given(Box::new(give)) }
    }

    /// The parameter of this name; `init` where it is not loaded.
    pub fn parameter<const D: usize>(&self, name: &str, shape: [usize; D], init: Init) -> Param<Tensor<D>> {
        let options = (&self.device, self.dtype);
        let tensor = match (&self.origin, init) {
            (Origin::Given(give), _) => {
                let tensor = Tensor::<D>::from_dispatch(give(name));
                debug_assert_eq!(tensor.dims(), shape, "{name}");
                return Param::initialized(ParamId::new(), tensor);
            }
            (Origin::Files(files), _) => {
                let Files { weights, filler } = &**files;
                let view = weights.get(name).expect("checked when opened");
                let fill = |elements: Range<usize>, out: &mut [u8]| {
                    part(&view, elements).write_to(out, stored(self.dtype)).expect("checked when opened");
                };
                filler.borrow_mut().tensor(shape, self.dtype, &fill).autodiff()
            }
            (Origin::Random, Init::Constant(value)) => Tensor::full(shape, value, options),
            (Origin::Random, Init::Normal(deviation)) => {
                Tensor::random(shape, Distribution::Normal(0.0, deviation), options)
            }
        };
        Param::initialized(ParamId::new(), tensor.require_grad())
    }

    /// On autodiff.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type that parameters are stored in.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

/// Some of a tensor's elements, in their order in memory.
fn part<'a>(view: &View<'a>, elements: Range<usize>) -> View<'a> {
    let size = view.bytes.len() / view.elements().max(1);
    let bytes = &view.bytes[elements.start * size..elements.end * size];
    View { name: view.name.clone(), dtype: view.dtype, shape: vec![elements.len()], bytes }
}

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}
