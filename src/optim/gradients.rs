//! [`GradientSet`]: the gradients of a network's parameters, summed over micro-batches.

use std::collections::HashMap;

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{Gradients, Tensor};

use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::kernels::elementwise::Sums;
use crate::ops::kernels::sum::sum_of_squares;
use crate::ops::parameters::{each_parameter, flat};
use crate::ops::slices;
use crate::ops::wide;

/// One gradient a parameter, in the parameter's type.
#[derive(Clone, Default)]
pub struct GradientSet {
    gradients: HashMap<ParamId, DispatchTensor>,
    /// In the order of the module: sums over all gradients are then the same in every run.
    order: Vec<ParamId>,
}

impl GradientSet {
    /// Takes the gradients of a module's parameters out of what backward gave and adds them.
    pub fn add<M: Module>(&mut self, module: &M, mut gradients: Gradients) {
        let mut sums = Sums::default();
        each_parameter(module, |id, parameter| {
            let Some(gradient) = parameter.grad_remove(&mut gradients) else { return };
            let sum = match self.gradients.remove(&id) {
                None => {
                    self.order.push(id);
                    gradient
                }
                Some(sum) if on_cuda(&gradient) => {
                    uncube(sums.add(cube(Tensor::<1>::from_dispatch(sum)), &cube(gradient)))
                }
                Some(sum) => Tensor::from_dispatch(sum) + gradient,
            };
            self.gradients.insert(id, sum.into_dispatch());
        });
    }

    #[cfg(test)]
    pub fn of<M: Module>(module: &M, gradients: Gradients) -> Self {
        let mut set = Self::default();
        set.add(module, gradients);
        set
    }

    /// Takes out the gradient of a parameter.
    pub fn take(&mut self, id: ParamId) -> Option<DispatchTensor> {
        self.order.retain(|other| *other != id);
        self.gradients.remove(&id)
    }

    /// Puts in the gradient of a parameter that has none.
    pub fn insert(&mut self, id: ParamId, gradient: DispatchTensor) {
        self.order.push(id);
        self.gradients.insert(id, gradient);
    }

    /// Every gradient, in the order of the module.
    pub fn into_ordered(mut self) -> Vec<(ParamId, DispatchTensor)> {
        let with = |id| Some((id, self.gradients.remove(&id)?));
        self.order.into_iter().filter_map(with).collect()
    }

    /// Gradients of a module's parameters, each flat or in its parameter's shape.
    pub fn of_map<M: Module>(module: &M, gradients: HashMap<ParamId, DispatchTensor>) -> Self {
        let mut order = Vec::with_capacity(gradients.len());
        each_parameter(module, |id, _| order.extend(gradients.contains_key(&id).then_some(id)));
        Self { gradients, order }
    }

    /// Every gradient, flat or in its parameter's shape.
    pub fn into_map(self) -> HashMap<ParamId, DispatchTensor> {
        self.gradients
    }

    /// A parameter's gradient, flat.
    pub fn get(&self, id: ParamId) -> Option<Tensor<1>> {
        self.gradients.get(&id).cloned().map(flat)
    }

    /// Σ g² over all gradients, [1] in fp32, on their device; `None` where there are none. Not finite where a
    /// gradient is not.
    pub fn squares(&self) -> Option<Tensor<1>> {
        self.squares_of(|_| true)
    }

    /// The same over the gradients of the parameters that count.
    pub fn squares_of(&self, counts: impl Fn(ParamId) -> bool) -> Option<Tensor<1>> {
        let counted = self.order.iter().filter(|id| counts(**id));
        let gradients: Vec<_> = counted.filter_map(|id| self.gradients.get(id).cloned()).collect();
        (!gradients.is_empty()).then(|| squares(gradients))
    }
}

/// What every gradient is to be multiplied by so that the norm over all of them is at most `limit`, as
/// `torch.nn.utils.clip_grad_norm_`: min(1, limit / (norm + 1e-6)), [1] in fp32.
pub fn clip_factor(norm: Tensor<1>, limit: f64) -> Tensor<1> {
    (norm + 1e-6).recip().mul_scalar(limit).clamp_max(1.0)
}

/// Σ g², [1] in fp32, over at least one gradient; all are on one device, of any shapes.
pub fn squares(gradients: Vec<DispatchTensor>) -> Tensor<1> {
    if on_cuda(&Tensor::<1>::from_dispatch(gradients[0].clone())) {
        let cube = |gradient| cube(Tensor::<1>::from_dispatch(gradient));
        return uncube(sum_of_squares(&gradients.into_iter().map(cube).collect::<Vec<_>>()));
    }
    let of_one = |gradient| {
        let gradient = flat(gradient);
        if slices::takes(&gradient) {
            return slices::sum_of_squares(gradient);
        }
        wide(gradient).square().sum()
    };
    gradients.into_iter().map(of_one).reduce(|a, b| a + b).expect("a gradient")
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    /// Gradients [3, 4] and [12] have the norm 13.
    #[test]
    fn the_norm_is_over_all_parameters() {
        let device = Device::flex();
        let mut set = GradientSet::default();
        for values in [vec![3.0f32, 4.0], vec![12.0]] {
            let gradient = Tensor::<1>::from_floats(values.as_slice(), &device);
            let id = ParamId::new();
            set.gradients.insert(id, gradient.into_dispatch());
            set.order.push(id);
        }
        let factor =
            |limit| clip_factor(set.squares().expect("gradients").sqrt(), limit).into_scalar::<f32>();
        assert!((factor(1.0) - 1.0 / 13.0).abs() < 1e-7);
        assert_eq!(factor(20.0), 1.0);
    }
}
