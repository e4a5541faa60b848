//! Optimizers with PyTorch's formulas and defaults. Each keeps one state per parameter. A rule is one file:
//! [`Rule`] and the [`State`] of one parameter.

pub mod adafactor;
pub mod adamw;
mod fixed_sums;
mod gradients;
pub mod host;
mod kept;
mod on_device;
mod remainders;
mod rounding;
mod schedule;
pub mod sgd;
mod step_size;

use burn::module::{Module, ParamId};
use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

pub use crate::optim::adamw::compact::{AdamW8bit, AdamWBf16};
pub use adafactor::Adafactor;
pub use adamw::AdamW;
pub use fixed_sums::FixedSums;
pub use gradients::{GradientSet, clip_factor, squares};
pub use kept::{Kept, Visit};
pub use on_device::DeviceOptimizer;
pub use schedule::Schedule;
pub use sgd::Sgd;
pub use step_size::StepSize;

use crate::common::DeviceId;
use crate::device;
use crate::keys::key::DefaultValue::Word;
use crate::keys::section::{kinds, section};
use crate::keys::values::Values;
use crate::keys::{Key, Section};
use crate::measure::alloc::Room;
use crate::ops::cost::Tensors;
use crate::ops::wide;
pub use crate::optim::adamw::cuda::Pending;
use host::{HostOptimizer, HostRule, Work};
use remainders::Remainders;
use rounding::{number, seed_of_rank};

kinds! {
    /// `train.optimizer`
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum OptimizerConfig: Updates {
        None(NoUpdate),
        Sgd(Sgd),
        AdamW(AdamW),
        AdamW8bit(AdamW8bit),
        #[serde(rename = "adamw_bf16")]
        AdamWBf16(AdamWBf16),
        Adafactor(Adafactor),
    }
}

/// What the kinds of optimizers have in common.
pub trait Updates {
    /// `None`: there is no update.
    fn rule(&self) -> Option<Box<dyn Rule>>;
}

impl<R: Rule + Clone + 'static> Updates for R {
    fn rule(&self) -> Option<Box<dyn Rule>> {
        Some(Box::new(self.clone()))
    }
}

section! {
    /// No update: a step is forward and backward alone.
    #[derive(Copy, Default)]
    pub struct NoUpdate: Section::of("train.optimizer", "kind", &["none"]) => {}
}

impl Updates for NoUpdate {
    fn rule(&self) -> Option<Box<dyn Rule>> {
        None
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::None(NoUpdate {})
    }
}

impl OptimizerConfig {
    /// `None`: there is no update.
    pub fn rule(&self) -> Option<Box<dyn Rule>> {
        let rule = Updates::rule(&**self)?;
        Some(if self.keeps_remainders() { Box::new(Remainders(rule)) } else { rule })
    }

    /// Whether bf16 parameters are their fp32 master's upper half.
    pub fn keeps_remainders(&self) -> bool {
        match self {
            Self::AdamW(rule) | Self::AdamW8bit(AdamW8bit(rule)) | Self::AdamWBf16(AdamWBf16(rule)) => {
                rule.store_param_remainders
            }
            _ => false,
        }
    }

    pub const KEY: Section = Section::new("train.optimizer").with(
        "What updates the weights.",
        &[Key::method(Values::Kinds)
            .named("kind", "Which optimizer.")
            .called("optimizer")
            .default(Word("none"))],
    );

    /// Bytes that the optimizer keeps between steps of these parameters.
    pub fn state_bytes(&self, tensors: Tensors) -> u64 {
        self.rule().map_or(0, |rule| rule.state_bytes(tensors))
    }

    /// Kernels of a GPU that update so many tensors.
    pub fn launches(&self, tensors: u64) -> u64 {
        self.rule().map_or(0, |rule| rule.launches(tensors))
    }

    /// Bytes that exist for a moment while a parameter of so many elements, of `stored` bytes each, is updated on
    /// the device, apart from it, its gradient and its state. A kernel updates it `in_place` where it can.
    pub fn workspace_bytes(&self, device: DeviceId, elements: u64, stored: u64, in_place: bool) -> u64 {
        let Some(rule) = self.rule() else { return 0 };
        match device {
            DeviceId::Cuda(_) if rule.has_kernel() => {
                u64::from(!in_place) * elements * stored + rule.kernel_workspace_bytes(elements)
            }
            DeviceId::Cpu | DeviceId::Cuda(_) => rule.workspace_bytes(elements, stored),
        }
    }
}

/// How parameters are updated.
pub trait Rule: Send {
    /// Bytes kept between steps.
    fn state_bytes(&self, tensors: Tensors) -> u64;

    /// Bytes that exist for a moment while Burn's operators or the CPU's kernels update so many elements of `stored` bytes
    /// each, besides the parameter, its gradient and its state.
    fn workspace_bytes(&self, elements: u64, stored: u64) -> u64;

    /// Whether a kernel of its own updates in place on CUDA; else Burn's operators compose the formula there too.
    fn has_kernel(&self) -> bool {
        false
    }

    /// Bytes that exist for a moment while its kernels update so many elements.
    fn kernel_workspace_bytes(&self, _elements: u64) -> u64 {
        0
    }

    /// Kernels of a GPU that update so many tensors; where Burn's operators compose the formula, a dozen or so for each.
    fn launches(&self, tensors: u64) -> u64 {
        12 * tensors
    }

    /// Whether the update of a matrix reads its rows and columns; else it works element by element.
    fn reads_matrices(&self) -> bool {
        false
    }

    /// The state of a parameter of this shape before its first update.
    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State>;

    /// What the updates of one step share on a device where the host does not wait for the flag
    /// [`StepSize::applied`]. It is made from that flag and from what the step before shared, and takes the flag's place.
    fn share(&self, applied: Tensor<1>, _before: Option<Tensor<1>>) -> Tensor<1> {
        applied
    }

    /// The same rule in the host's memory; `None` where it has no such form.
    fn on_host(&self) -> Option<HostRule> {
        None
    }
}

/// What a rule keeps of one parameter.
pub trait State: Send {
    /// The flat parameter after a step along its gradient. It has its new value once what is `pending` is dropped.
    fn update(
        &mut self,
        parameter: Tensor<1>,
        gradient: Tensor<1>,
        size: &StepSize,
        pending: &mut Pending,
    ) -> Tensor<1>;

    /// The number of the tensor that it is of: random rounding differs from tensor to tensor. It is 0 until it is set.
    fn set_number(&mut self, _number: u32) {}

    /// All that it keeps between steps.
    fn visit(&mut self, visit: &mut Visit);
}

/// An optimizer with the state of every parameter it has updated.
pub enum Optimizer {
    None,
    OnDevice(Box<DeviceOptimizer>),
    /// An optimizer with its state and its arithmetic on the host.
    OnHost(HostOptimizer),
}

impl Optimizer {
    /// `host`: on the host, for parameters of this device, with its state in this room.
    ///
    /// # Panics
    /// When the rule has no form for the host, and is to run there.
    pub fn new(config: &OptimizerConfig, host: Option<(DeviceId, Room)>) -> Self {
        match (config.rule(), host) {
            (None, _) => Self::None,
            (Some(rule), None) => Self::OnDevice(Box::new(DeviceOptimizer::new(rule))),
            (Some(rule), Some((device, room))) => {
                Self::OnHost(HostOptimizer::new(rule.on_host().expect("a rule for the host"), device, room))
            }
        }
    }

    /// Takes the parameters before the first backward; of use on the host alone.
    ///
    /// # Panics
    /// When the host has not enough memory for their state.
    pub fn adopt<M: Module>(&mut self, module: &M) {
        if let Self::OnHost(host) = self {
            host.adopt(module);
        }
    }

    /// Makes the states that the device keeps, so that the first step has them from its beginning, as every
    /// other has. A parameter without one gets it in its first update.
    pub fn make_states<M: Module>(&mut self, module: &M) {
        if let Self::OnDevice(optimizer) = self {
            optimizer.make_states(module);
        }
    }

    /// The state kept under `id`, whose values are named `name.m` and so on.
    pub fn visit(&mut self, id: ParamId, name: &str, visit: &mut Visit) {
        let visit = &mut |value: &str, kept: Kept<'_>| visit(&format!("{name}.{value}"), kept);
        match self {
            Self::None => {}
            Self::OnDevice(optimizer) => optimizer.visit(id, visit),
            Self::OnHost(host) => host.worker.visit(id, visit),
        }
    }

    /// Updates every parameter that has a gradient, unless the step is not to be applied. Each gradient is
    /// freed as it is used.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, size: &StepSize) -> M {
        match self {
            Self::None => module,
            Self::OnDevice(optimizer) => optimizer.step(module, gradients, size),
            Self::OnHost(host) => match Work::step(size) {
                Some(work) => host.step(module, gradients, work),
                None => module,
            },
        }
    }
}

/// Moments before the first step, in fp32 for every type of parameter.
fn zeros(elements: usize, device: &Device) -> Tensor<1> {
    device::zeros([elements], (device, DType::F32))
}

/// Bytes of a parameter's copy in fp32, where it is stored in fewer bits.
fn widened(elements: u64, stored: u64) -> u64 {
    if stored < 4 { 4 * elements } else { 0 }
}

/// The gradient times the step's factor, in fp32.
fn clipped(gradient: Tensor<1>, size: &StepSize) -> Tensor<1> {
    match &size.clip {
        None => wide(gradient),
        Some(clip) => wide(gradient) * clip.clone(),
    }
}

#[cfg(test)]
mod tests;
