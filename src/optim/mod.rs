//! Optimizers with PyTorch's formulas and defaults. Each keeps one state per parameter.

mod adamw;
mod gradients;
pub mod host;
mod schedule;
mod sgd;

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

pub use adamw::AdamW;
pub use gradients::{GradientSet, clip_factor, squares};
pub use schedule::Schedule;
pub use sgd::Sgd;

use crate::device::DeviceId;
use crate::ops::backend::on_cuda;
use crate::ops::wide;
use crate::residence::{Blocks, Memory};
use crate::words::key::{DefaultValue::Word, Key, Section, Values};
use host::{HostAdamW, Work};

/// `train.optimizer`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerConfig {
    /// No update: a step is forward and backward alone.
    None(NoKeys),
    Sgd(Sgd),
    AdamW(AdamW),
}

/// A kind without keys of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoKeys {}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::None(NoKeys {})
    }
}

impl OptimizerConfig {
    pub const SECTIONS: &[Section] = &[
        Section::new(
            "train.optimizer",
            "What updates the weights.",
            &[Key::method("kind", Values::Kinds, Word("none"), "Which optimizer.")],
        ),
        Section::of(
            "train.optimizer",
            "kind",
            &["none"],
            "No update: a step is forward and backward alone.",
            &[],
        ),
        Sgd::SECTION,
        AdamW::SECTION,
    ];

    /// Tensors of a parameter's size that the device keeps between steps when the optimizer's state is in
    /// `memory`.
    pub fn state_tensors(&self, memory: Memory) -> u64 {
        match self {
            Self::None(_) => 0,
            Self::Sgd(sgd) => sgd.state_tensors(),
            Self::AdamW(_) if memory == Memory::Host => 0,
            Self::AdamW(_) => 2,
        }
    }

    /// Tensors of a parameter's size that exist on the device for a moment while that parameter is
    /// updated, besides the parameter, its gradient and its state.
    pub fn workspace_tensors(&self, memory: Memory) -> u64 {
        match self {
            Self::None(_) => 0,
            Self::AdamW(_) if memory == Memory::Host => 0,
            // In place.
            Self::Sgd(_) => 0,
            Self::AdamW(_) => 2,
        }
    }
}

/// How far one step goes.
#[derive(Clone)]
pub struct StepSize {
    /// Factor of the learning rate, from the schedule.
    pub rate: f64,
    /// Factor of every gradient, which clips it and undoes the loss's scale, [1] in fp32; `None`: 1.
    pub clip: Option<Tensor<1>>,
    /// 1, or 0 where parameters and state are to stay as they are, [1] in fp32 on the device; `None`: 1.
    pub applied: Option<Tensor<1>>,
}

impl StepSize {
    /// The learning rate as configured, no clipping, and nothing skipped.
    pub const FULL: Self = Self { rate: 1.0, clip: None, applied: None };
}

/// One parameter's update on flat views: `(parameter, gradient, state) → parameter`.
pub trait UpdateRule {
    type State;

    /// Of a parameter of `elements` elements before its first update.
    fn state(&self, elements: usize, device: &Device) -> Self::State;

    /// What the updates of one step share on a device whose flag [`StepSize::applied`] the host does not
    /// wait for, from that flag and the same of the step before; it takes the flag's place.
    fn share(&self, applied: Tensor<1>, _before: Option<Tensor<1>>) -> Tensor<1> {
        applied
    }

    fn update(
        &self,
        parameter: Tensor<1>,
        gradient: Tensor<1>,
        state: &mut Self::State,
        size: &StepSize,
    ) -> Tensor<1>;
}

/// An optimizer with the state of every parameter it has updated.
pub enum Optimizer {
    None,
    Sgd(Stateful<Sgd>),
    AdamW(Stateful<AdamW>),
    /// AdamW with its state and its arithmetic on the host.
    Host(HostAdamW),
}

/// An update rule and its states.
pub struct Stateful<R: UpdateRule> {
    rule: R,
    states: HashMap<ParamId, R::State>,
    /// [`UpdateRule::share`] of the last step that had a flag.
    shared: Option<Tensor<1>>,
}

impl Optimizer {
    /// With its state in `memory`, for parameters on `device`.
    pub fn new(config: &OptimizerConfig, memory: Memory, device: DeviceId) -> Self {
        match config {
            OptimizerConfig::None(_) => Self::None,
            OptimizerConfig::AdamW(rule) if memory == Memory::Host => {
                Self::Host(HostAdamW::new(rule.clone(), device))
            }
            OptimizerConfig::Sgd(rule) => Self::Sgd(Stateful::new(rule.clone())),
            OptimizerConfig::AdamW(rule) => Self::AdamW(Stateful::new(rule.clone())),
        }
    }

    /// Takes the parameters before the first backward; of use on the host alone.
    ///
    /// # Panics
    /// When the host has not enough memory for their state.
    pub fn adopt<M: Module>(&mut self, module: &M, blocks: Option<&Blocks>) {
        if let Self::Host(host) = self {
            blocks.inspect(|blocks| blocks.adopt(host.worker()));
            host.adopt(module);
        }
    }

    /// Makes the states that the device keeps, so that the first step has them from its beginning, as every
    /// other has. A parameter without one gets it in its first update.
    pub fn make_states<M: Module>(&mut self, module: &M, blocks: Option<&Blocks>) {
        blocks.inspect(|blocks| blocks.make_states(self));
        module.visit(&mut MakeStates(self));
    }

    /// The same of one parameter, whose state is kept under `id`.
    pub fn make_state(&mut self, id: ParamId, elements: usize, device: &Device) {
        match self {
            Self::None | Self::Host(_) => {}
            Self::Sgd(stateful) => _ = stateful.state(id, elements, device),
            Self::AdamW(stateful) => _ = stateful.state(id, elements, device),
        }
    }

    /// Seconds that updates on the host have taken since the last call.
    pub fn take_host_seconds(&self) -> Option<f64> {
        match self {
            Self::Host(host) => Some(host.worker().take_seconds()),
            Self::None | Self::Sgd(_) | Self::AdamW(_) => None,
        }
    }

    /// Updates one flat parameter, whose state is kept under `id`; all three are outside of autodiff.
    pub fn update(
        &mut self,
        id: ParamId,
        flat: Tensor<1>,
        gradient: Tensor<1>,
        size: &StepSize,
    ) -> Tensor<1> {
        match self {
            Self::None => flat,
            Self::Sgd(stateful) => stateful.update(id, flat, gradient, size),
            Self::AdamW(stateful) => stateful.update(id, flat, gradient, size),
            Self::Host(_) => unreachable!("what is updated on the host goes there"),
        }
    }

    /// Updates every parameter that has a gradient, unless the step is not to be applied. Each gradient is
    /// freed as it is used.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, size: &StepSize) -> M {
        match self {
            Self::None => module,
            Self::Sgd(stateful) => stateful.step(module, gradients, size),
            Self::AdamW(stateful) => stateful.step(module, gradients, size),
            Self::Host(host) => host.step(module, gradients, Work::step(size)),
        }
    }
}

impl<R: UpdateRule> Stateful<R> {
    fn new(rule: R) -> Self {
        Self { rule, states: HashMap::new(), shared: None }
    }

    fn step<M: Module>(&mut self, module: M, gradients: GradientSet, size: &StepSize) -> M {
        let mut size = size.clone();
        if let Some(applied) = size.applied.take() {
            if on_cuda(&applied) {
                self.shared = Some(self.rule.share(applied, self.shared.take()));
                size.applied = self.shared.clone();
            } else if applied.into_scalar::<f32>() == 0.0 {
                // The CPU computes when it is called: the flag is there already.
                return module;
            }
        }
        module.map(&mut Update { stateful: self, gradients, size: &size })
    }

    fn update(&mut self, id: ParamId, flat: Tensor<1>, gradient: Tensor<1>, size: &StepSize) -> Tensor<1> {
        let (rule, state) = self.state(id, flat.dims()[0], &flat.device());
        rule.update(flat, gradient, state, size)
    }

    fn state(&mut self, id: ParamId, elements: usize, device: &Device) -> (&R, &mut R::State) {
        let Self { rule, states, .. } = self;
        (rule, states.entry(id).or_insert_with(|| rule.state(elements, device)))
    }
}

struct MakeStates<'a>(&'a mut Optimizer);

impl ModuleVisitor for MakeStates<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val().inner();
        self.0.make_state(param.id, tensor.shape().num_elements(), &tensor.device());
    }
}

/// Visits the parameters of a module and updates each.
struct Update<'a, R: UpdateRule> {
    stateful: &'a mut Stateful<R>,
    gradients: GradientSet,
    size: &'a StepSize,
}

impl<R: UpdateRule> ModuleMapper for Update<'_, R> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = parameter.consume();
        let shape = tensor.shape();
        let size = shape.num_elements();
        let Some(gradient) = self.gradients.take(id, size) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let updated = self.stateful.update(id, tensor.inner().reshape([size]), gradient, self.size);
        let tensor = Tensor::from_inner(updated.reshape(shape)).require_grad();
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// What moments are before the first step, in fp32 whatever the parameter's type is.
fn zeros(elements: usize, device: &Device) -> Tensor<1> {
    Tensor::zeros([elements], (device, DType::F32))
}

/// The gradient times the step's factor, in fp32.
fn clipped(gradient: Tensor<1>, size: &StepSize) -> Tensor<1> {
    match &size.clip {
        None => wide(gradient),
        Some(clip) => wide(gradient) * clip.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Module, Debug)]
    struct One {
        weight: Param<Tensor<1>>,
    }

    /// Parameters after steps of which those marked are not applied.
    fn trained(config: &OptimizerConfig, steps: &[(f32, bool)]) -> Vec<Vec<f32>> {
        let device = Device::flex().autodiff();
        let weight = Tensor::<1>::from_floats([1.0, -2.0, 0.5], &device).require_grad();
        let mut module = One { weight: Param::initialized(ParamId::new(), weight) };
        let mut optimizer = Optimizer::new(config, Memory::Device, DeviceId::Cpu);
        let step = |(gradient, applied): &(f32, bool)| {
            let mut gradients = GradientSet::default();
            gradients.add(&module, (module.weight.val() * *gradient).sum().backward());
            let flag = Tensor::from_floats([f32::from(u8::from(*applied))], &Device::flex());
            let size = StepSize { applied: Some(flag), ..StepSize::FULL };
            module = optimizer.step(module.clone(), gradients, &size);
            module.weight.val().into_data().try_to_vec().unwrap()
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn a_step_that_is_not_applied_leaves_everything_as_it_was() {
        let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.1 };
        for config in [OptimizerConfig::Sgd(sgd), OptimizerConfig::AdamW(AdamW::default())] {
            let all = trained(&config, &[(0.5, true), (-2.0, true), (3.0, true)]);
            let lost = f32::INFINITY;
            let skipping =
                trained(&config, &[(lost, false), (0.5, true), (lost, false), (-2.0, true), (3.0, true)]);
            assert_eq!(skipping[0], [1.0, -2.0, 0.5]);
            assert_eq!(skipping[1], skipping[2]);
            assert_eq!(all, [&skipping[1..2], &skipping[3..]].concat());
        }
    }
}
