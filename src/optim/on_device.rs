//! [`DeviceOptimizer`]: a rule with the states of all parameters it has updated, on their device.

use std::collections::HashMap;

use burn::module::{Module, ParamId};
use burn::tensor::{Device, Tensor};

use super::{GradientSet, Kept, Pending, Rule, State, StepSize, Visit, number, zeros};
use crate::ops::backend::on_cuda;
use crate::ops::parameters::{each_parameter, flat, update_each};

pub struct DeviceOptimizer {
    rule: Box<dyn Rule>,
    states: HashMap<ParamId, Box<dyn State>>,
    /// [`Rule::share`] of the last step that had a flag.
    shared: Option<Tensor<1>>,
}

impl DeviceOptimizer {
    pub fn new(rule: Box<dyn Rule>) -> Self {
        Self { rule, states: HashMap::new(), shared: None }
    }

    /// Makes the states of all trainable parameters.
    pub fn make_states<M: Module>(&mut self, module: &M) {
        each_parameter(module, |id, parameter| {
            if parameter.is_require_grad() {
                self.state(id, &parameter.shape(), &parameter.inner().device());
            }
        });
    }

    /// The state of one parameter, made where there is none.
    pub fn state(&mut self, id: ParamId, shape: &[usize], device: &Device) -> &mut dyn State {
        &mut **self.states.entry(id).or_insert_with(|| {
            let mut state = self.rule.state(shape, device);
            state.set_number(number(id));
            state
        })
    }

    /// The state kept under `id`, where there is one.
    pub fn visit(&mut self, id: ParamId, visit: &mut Visit) {
        self.states.get_mut(&id).into_iter().for_each(|state| state.visit(visit));
    }

    /// What the updates of one step share on this device, [`Rule::share`]. A step that was not applied leaves it
    /// as it is before the first.
    pub fn visit_shared(&mut self, device: &Device, visit: &mut Visit) {
        let first = || self.rule.share(zeros(1, device), None);
        visit("shared", Kept::Tensor(self.shared.get_or_insert_with(first)));
    }

    /// The step's size as the updates of all parameters take it; `None`: none is updated.
    pub fn begin(&mut self, size: &StepSize) -> Option<StepSize> {
        let mut size = size.clone();
        if let Some(applied) = size.applied.take() {
            if on_cuda(&applied) {
                self.shared = Some(self.rule.share(applied, self.shared.take()));
                size.applied = self.shared.clone();
            } else if applied.into_scalar::<f32>() == 0.0 {
                // The CPU computes when it is called: the flag is there already.
                return None;
            }
        }
        Some(size)
    }

    /// As [`Optimizer::step`](super::Optimizer::step).
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, size: &StepSize) -> M {
        let Some(size) = self.begin(size) else { return module };
        let mut pending = Pending::default();
        update_each(module, gradients.into_map(), |id, parameter, gradient| {
            // The rank of a tensor is a mark on its type alone.
            let shape = Tensor::<1>::from_dispatch(gradient.clone()).shape();
            let state = self.state(id, &shape, &parameter.device());
            state.update(parameter, flat(gradient), &size, &mut pending)
        })
    }

    /// Updates one flat parameter, whose state is kept under `id`; all three are outside of autodiff. `size`: of a step that
    /// has [begun](Self::begin), where it may be skipped.
    pub fn update(
        &mut self,
        id: ParamId,
        flat: Tensor<1>,
        gradient: Tensor<1>,
        size: &StepSize,
    ) -> Tensor<1> {
        let state = self.state(id, &flat.dims(), &flat.device());
        state.update(flat, gradient, size, &mut Pending::default())
    }
}
