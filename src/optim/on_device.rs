//! [`DeviceOptimizer`]: a rule with the states of all parameters it has updated, on their device.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Tensor};

use super::{GradientSet, Kept, Pending, Rule, State, StepSize, Visit, zeros};
use crate::ops::backend::on_cuda;

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
        module.visit(&mut MakeStates(self));
    }

    /// The state of one parameter, made where there is none.
    pub fn state(&mut self, id: ParamId, elements: usize, device: &Device) -> &mut dyn State {
        &mut **self.states.entry(id).or_insert_with(|| self.rule.state(elements, device))
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

    /// As [`Optimizer::step`](super::Optimizer::step).
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientSet, size: &StepSize) -> M {
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
        module.map(&mut Update { optimizer: self, gradients, size: &size, pending: Pending::default() })
    }

    /// Updates one flat parameter, whose state is kept under `id`; all three are outside of autodiff.
    pub fn update(
        &mut self,
        id: ParamId,
        flat: Tensor<1>,
        gradient: Tensor<1>,
        size: &StepSize,
    ) -> Tensor<1> {
        let state = self.state(id, flat.dims()[0], &flat.device());
        state.update(flat, gradient, size, &mut Pending::default())
    }
}

struct MakeStates<'a>(&'a mut DeviceOptimizer);

impl ModuleVisitor for MakeStates<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        if tensor.is_require_grad() {
            self.0.state(param.id, tensor.shape().num_elements(), &tensor.inner().device());
        }
    }
}

/// Visits the parameters of a module and updates each.
struct Update<'a> {
    optimizer: &'a mut DeviceOptimizer,
    gradients: GradientSet,
    size: &'a StepSize,
    pending: Pending,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = parameter.consume();
        let shape = tensor.shape();
        let size = shape.num_elements();
        let Some(gradient) = self.gradients.take(id, size) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let flat = tensor.inner().reshape([size]);
        let state = self.optimizer.state(id, size, &flat.device());
        let updated = state.update(flat, gradient, self.size, &mut self.pending);
        let tensor = Tensor::from_inner(updated.reshape(shape)).require_grad();
        Param::from_mapped_value(id, tensor, mapper)
    }
}
