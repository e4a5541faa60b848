//! [`Source`]: where a network's parameters come from: random numbers, a folder of weights, tensors that are
//! there already, or their shapes alone.

mod first_values;
mod packed;
mod parameter;

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{DType, Device};

use super::WeightsFrom;
use super::peft::AdapterFile;
use super::split::Side;
use super::table::{Group, Table, Tuning};
use crate::common::DeviceId;
use crate::device::Filler;
use crate::params::weights::Weights;
use crate::world::ProcessGroup;

/// The values of a parameter before training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Constant(f64),
    /// Normal with this standard deviation.
    Normal(f64),
    /// Uniform from minus to plus this.
    Uniform(f64),
    /// The lengths of the rows of the weight that an adapter's matrix belongs to.
    RowLengths,
}

/// Makes parameters by their Hugging Face names, on a device and in the type they are stored in, and records
/// them.
#[derive(Clone)]
pub struct Source {
    shared: Rc<Shared>,
    /// Of the module whose parameters are made: `model.layers.0.self_attn.q_proj`; its last part alone where they
    /// are given.
    path: Cow<'static, str>,
    group: Group,
    /// Which side of a linear layer divides among ranks; `None`: every rank has all of it.
    side: Option<Side>,
    /// Those that divide parameters among them.
    ranks: ProcessGroup,
    /// Standard deviation of the model's own random weights.
    deviation: f64,
}

/// Standard deviation of random weights, as transformers draws them where a model does not say another.
pub const DEVIATION: f64 = 0.02;

struct Shared {
    /// On autodiff.
    device: Device,
    dtype: DType,
    tuning: Tuning,
    origin: Origin,
    /// The first values of adapters, where a file has them.
    adapter: Option<AdapterFile>,
    table: RefCell<Table>,
}

enum Origin {
    Shapes,
    /// Drawn on this device.
    Random(DeviceId),
    Files(Box<Files>),
    Given(RefCell<vec::IntoIter<Given>>),
}

/// A parameter that is there already, tracked by autodiff or not.
pub type Given = (ParamId, DispatchTensor);

struct Files {
    weights: Weights,
    filler: RefCell<Filler>,
}

impl Source {
    /// `expected`: the parameters that will be asked for; `tied`: whether the head is the embedding.
    ///
    /// # Errors
    /// When the folder's weights, or those of the tuning's adapter, are damaged or not those of the model.
    pub fn open(
        from: &WeightsFrom,
        (expected, tied): (&Table, bool),
        device: DeviceId,
        dtype: DType,
        tuning: &Tuning,
    ) -> Result<Self, String> {
        let origin = match from {
            WeightsFrom::Random => Origin::Random(device),
            WeightsFrom::Folder(folder) => {
                let weights = Weights::open(folder)?;
                weights.check(expected, tied)?;
                Origin::Files(Box::new(Files { weights, filler: RefCell::new(device.filler()) }))
            }
        };
        let adapter =
            tuning.folder.as_deref().map(|folder| AdapterFile::open(folder, expected)).transpose()?;
        Ok(Self::with_adapter(&device.burn(), dtype, tuning, origin, adapter))
    }

    /// Every parameter is random, and trained.
    pub fn random(device: DeviceId, dtype: DType) -> Self {
        Self::new(&device.burn(), dtype, &Tuning::default(), Origin::Random(device))
    }

    /// Parameters that have shapes and no values.
    pub fn shapes(dtype: DType, tuning: &Tuning) -> Self {
        Self::new(&DeviceId::Cpu.burn(), dtype, tuning, Origin::Shapes)
    }

    /// Hands out parameters in the order in which they are asked for, that of the [`Table`]. A block that moves is
    /// made of one at each of its turns: no name is put together or looked up.
    pub fn given(device: &Device, dtype: DType, tuning: &Tuning, parameters: Vec<Given>) -> Self {
        Self::new(device, dtype, tuning, Origin::Given(RefCell::new(parameters.into_iter())))
    }

    fn new(device: &Device, dtype: DType, tuning: &Tuning, origin: Origin) -> Self {
        Self::with_adapter(device, dtype, tuning, origin, None)
    }

    fn with_adapter(
        device: &Device,
        dtype: DType,
        tuning: &Tuning,
        origin: Origin,
        adapter: Option<AdapterFile>,
    ) -> Self {
        let (device, tuning) = (device.clone().autodiff(), tuning.clone());
        let shared = Shared { device, dtype, tuning, origin, adapter, table: RefCell::default() };
        Self {
            shared: Rc::new(shared),
            path: "".into(),
            group: Group::Embedding,
            side: None,
            ranks: ProcessGroup::alone(),
            deviation: DEVIATION,
        }
    }

    /// The source of a module inside of this one.
    #[must_use]
    pub fn at(&self, module: impl Into<Cow<'static, str>>) -> Self {
        Self { path: self.path_of(module.into()), ..self.clone() }
    }

    fn path_of(&self, part: Cow<'static, str>) -> Cow<'static, str> {
        let is_given = matches!(self.shared.origin, Origin::Given(_));
        if is_given || self.path.is_empty() { part } else { format!("{}.{part}", self.path).into() }
    }

    /// The source of random weights of this standard deviation.
    #[must_use]
    pub fn drawn_within(&self, deviation: f64) -> Self {
        Self { deviation, ..self.clone() }
    }

    /// Standard deviation of the model's own random weights.
    pub fn deviation(&self) -> f64 {
        self.deviation
    }

    /// The source of parameters of this group.
    #[must_use]
    pub fn within(&self, group: Group) -> Self {
        Self { group, ..self.clone() }
    }

    /// The source of a linear layer that divides among ranks by this side.
    #[must_use]
    pub fn divided_by(&self, side: Side) -> Self {
        Self { side: Some(side), ..self.clone() }
    }

    /// Which side of the linear layer of this source divides.
    pub fn side(&self) -> Option<Side> {
        self.side
    }

    /// Gives a rank its share of what divides, and all of the rest: of the same values as one process has.
    #[must_use]
    pub fn among(&self, ranks: &ProcessGroup) -> Self {
        Self { ranks: ranks.clone(), ..self.clone() }
    }

    /// Those that divide parameters among them.
    pub fn ranks(&self) -> &ProcessGroup {
        &self.ranks
    }

    /// A module of a network of which some are elsewhere: `None` of one that is not `here`. Random weights are drawn for
    /// it all the same, so that the others are those of the whole network.
    pub fn held<T>(&self, here: bool, make: impl FnOnce() -> T) -> Option<T> {
        let draws = matches!(self.shared.origin, Origin::Random(_));
        (here || draws).then(make).filter(|_| here)
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

#[cfg(test)]
mod tests {
    use burn::tensor::Tensor;

    use super::*;

    /// A block that moves is made of such a source at each of its turns.
    #[test]
    fn given_parameters_come_in_their_order_and_no_name_is_put_together() {
        let device = DeviceId::Cpu.burn();
        let parameter = |number: u64| {
            let value = Tensor::<1>::full([2], number as f64, (&device, DType::F32));
            (ParamId::from(number), value.into_dispatch())
        };
        let source = Source::given(&device, DType::F32, &Tuning::default(), vec![parameter(7), parameter(3)]);
        let inner = source.within(Group::Block(5)).at("self_attn").at("q_proj");
        assert_eq!(inner.module(), "q_proj");
        assert!(matches!(inner.path, Cow::Borrowed(_)));
        for number in [7, 3] {
            let parameter = inner.parameter("weight", [2], Init::Constant(0.0));
            assert_eq!(parameter.id, ParamId::from(number));
            assert_eq!(parameter.val().into_data().try_to_vec::<f32>().unwrap(), [number as f32; 2]);
        }
        assert!(source.table().entries.is_empty());
    }
}
