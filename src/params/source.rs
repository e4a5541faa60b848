//! [`Source`]: where a network's parameters come from: random numbers, a folder of weights, tensors that are
//! there already, or their shapes alone.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use burn::backend::DispatchTensor;
use burn::module::Param;
use burn::tensor::{DType, Device, Distribution, Shape, Tensor};

use super::WeightsFrom;
use super::table::{Entry, Group, Table, Tuning, id};
use crate::device::{DeviceId, Filler};
use crate::params::weights::{Weights, write_elements};

/// The values of a parameter before training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Constant(f64),
    /// Normal with this standard deviation.
    Normal(f64),
}

/// Makes parameters by their Hugging Face names, on a device and in the type they are stored in, and records
/// them.
#[derive(Clone)]
pub struct Source {
    shared: Rc<Shared>,
    /// Of the module whose parameters are made: `model.layers.0.self_attn.q_proj`.
    path: String,
    group: Group,
}

struct Shared {
    /// On autodiff.
    device: Device,
    dtype: DType,
    tuning: Tuning,
    origin: Origin,
    table: RefCell<Table>,
}

enum Origin {
    Shapes,
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
    /// `expected`: the parameters that will be asked for.
    ///
    /// # Errors
    /// When the folder's weights are damaged or not those of the model.
    pub fn open(
        from: &WeightsFrom,
        expected: &Table,
        device: DeviceId,
        dtype: DType,
        tuning: &Tuning,
    ) -> Result<Self, String> {
        let origin = match from {
            WeightsFrom::Random => Origin::Random,
            WeightsFrom::Folder(folder) => {
                let weights = Weights::open(folder)?;
                weights.check(expected)?;
                Origin::Files(Box::new(Files { weights, filler: RefCell::new(device.filler()) }))
            }
        };
        Ok(Self::new(device.burn(), dtype, tuning, origin))
    }

    /// Every parameter is random, and trained.
    pub fn random(device: &Device, dtype: DType) -> Self {
        Self::new(device.clone(), dtype, &Tuning::default(), Origin::Random)
    }

    /// Parameters that have shapes and no values.
    pub fn shapes(dtype: DType, tuning: &Tuning) -> Self {
        Self::new(DeviceId::Cpu.burn(), dtype, tuning, Origin::Shapes)
    }

    /// Hands out the tensors that `give` has, as they are: tracked by autodiff or not.
    pub fn given(
        device: &Device,
        dtype: DType,
        tuning: &Tuning,
        give: impl Fn(&str) -> DispatchTensor + 'static,
    ) -> Self {
        Self::new(device.clone(), dtype, tuning, Origin::Given(Box::new(give)))
    }

    fn new(device: Device, dtype: DType, tuning: &Tuning, origin: Origin) -> Self {
        let (device, tuning) = (device.autodiff(), tuning.clone());
        let shared = Shared { device, dtype, tuning, origin, table: RefCell::default() };
        Self { shared: Rc::new(shared), path: String::new(), group: Group::Embedding }
    }

    /// The source of a module inside of this one.
    #[must_use]
    pub fn at(&self, module: &str) -> Self {
        let path = if self.path.is_empty() { module.to_string() } else { format!("{}.{module}", self.path) };
        Self { path, ..self.clone() }
    }

    /// The source of parameters of this group.
    #[must_use]
    pub fn within(&self, group: Group) -> Self {
        Self { group, ..self.clone() }
    }

    /// The parameter of this name within the module; `init` where it is not loaded.
    pub fn parameter<const D: usize>(&self, name: &str, shape: [usize; D], init: Init) -> Param<Tensor<D>> {
        let Shared { device, dtype, tuning, origin, table } = &*self.shared;
        let name = self.at(name).path;
        let (id, trainable) = (id(&name), (tuning.trainable)(&name, self.group));
        let options = (device, *dtype);
        let tensor = match (origin, init) {
            (Origin::Given(give), _) => {
                let tensor = Tensor::<D>::from_dispatch(give(&name));
                debug_assert_eq!(tensor.dims(), shape, "{name}");
                return Param::initialized(id, tensor);
            }
            (Origin::Shapes, _) => None,
            (Origin::Files(files), _) if self.group != Group::Adapter => {
                let Files { weights, filler } = &**files;
                let tensor = weights.get(&name).expect("checked when opened");
                let fill = |elements: Range<usize>, out: &mut [u8]| {
                    write_elements(&tensor, elements, out, *dtype);
                };
                Some(filler.borrow_mut().tensor(shape, *dtype, &fill).autodiff())
            }
            (Origin::Files(_) | Origin::Random, Init::Constant(value)) => {
                Some(Tensor::full(shape, value, options))
            }
            (Origin::Files(_) | Origin::Random, Init::Normal(deviation)) => {
                // As a vector: Burn aligns the rows of what it makes on CUDA, and kernels would copy them.
                let elements: usize = shape.iter().product();
                let values = Tensor::<1>::random([elements], Distribution::Normal(0.0, deviation), options);
                Some(values.reshape(shape))
            }
        };
        let entry = Entry { name, shape: shape.to_vec(), dtype: *dtype, trainable, group: self.group };
        table.borrow_mut().entries.push(entry);
        match tensor {
            None => {
                let empty = |_: &Device, _| unreachable!("a source of shapes has no values");
                Param::uninitialized(id, empty, device.clone(), trainable, Shape::from(shape))
            }
            Some(tensor) if trainable => Param::initialized(id, tensor.require_grad()),
            Some(tensor) => Param::initialized(id, tensor),
        }
    }

    /// The parameters made so far.
    pub fn table(&self) -> Table {
        self.shared.table.borrow().clone()
    }

    pub fn tuning(&self) -> &Tuning {
        &self.shared.tuning
    }

    pub fn group(&self) -> Group {
        self.group
    }

    /// The last part of the module's path: `q_proj`.
    pub fn module(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// On autodiff.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// The type that parameters are stored in.
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }
}
