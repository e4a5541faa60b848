//! [`GradientSet`]: the gradients of a network's parameters, summed over micro-batches.

use std::collections::HashMap;

use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};

use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::cpu;
use crate::ops::kernels::sum::sum_of_squares;
use crate::ops::wide;

/// One gradient a parameter, in the parameter's type.
#[derive(Default)]
pub struct GradientSet {
    gradients: HashMap<ParamId, DispatchTensor>,
    /// In the order of the module: sums over all gradients are then the same in every run.
    order: Vec<ParamId>,
}

impl GradientSet {
    /// Takes the gradients of a module's parameters out of what backward gave and adds them.
    pub fn add<M: Module>(&mut self, module: &M, mut gradients: Gradients) {
        module.visit(&mut Collect { set: self, gradients: &mut gradients });
    }

    /// Hands a parameter's gradient over, flat.
    pub fn take(&mut self, id: ParamId, size: usize) -> Option<Tensor<1>> {
        // The rank of a tensor is a mark on its type alone; the reshape makes it true.
        self.gradients.remove(&id).map(|gradient| Tensor::<1>::from_dispatch(gradient).reshape([size]))
    }

    /// A parameter's gradient, in the parameter's shape.
    pub fn get<const D: usize>(&self, id: ParamId) -> Option<Tensor<D>> {
        self.gradients.get(&id).cloned().map(Tensor::from_dispatch)
    }

    /// Σ g² over all gradients, [1] in fp32, on their device; `None` where there are none. Not finite where a
    /// gradient is not.
    pub fn squares(&self) -> Option<Tensor<1>> {
        let gradients: Vec<_> = self.order.iter().filter_map(|id| self.gradients.get(id).cloned()).collect();
        (!gradients.is_empty()).then(|| squares(gradients))
    }
}

/// What every gradient is to be multiplied by so that the norm over all of them is at most `limit`, as
/// `torch.nn.utils.clip_grad_norm_`: min(1, limit / (norm + 1e-6)), [1] in fp32.
pub fn clip_factor(norm: Tensor<1>, limit: f64) -> Tensor<1> {
    (norm + 1e-6).recip().mul_scalar(limit).clamp_max(1.0)
}

/// Σ g², [1] in fp32, over gradients of any shapes on one device, of which there is one at least.
pub fn squares(gradients: Vec<DispatchTensor>) -> Tensor<1> {
    let gradients: Vec<Tensor<1>> = gradients.into_iter().map(Tensor::<1>::from_dispatch).collect();
    if on_cuda(&gradients[0]) {
        let gradients: Vec<_> = gradients.into_iter().map(cube).collect();
        return uncube(sum_of_squares(&gradients));
    }
    let of_one = |gradient: Tensor<1>| {
        if cpu::takes(&gradient) {
            return cpu::update::sum_of_squares(gradient);
        }
        let size = gradient.shape().num_elements();
        wide(gradient.reshape([size])).square().sum()
    };
    gradients.into_iter().map(of_one).reduce(|a, b| a + b).expect("a gradient")
}

struct Collect<'a> {
    set: &'a mut GradientSet,
    gradients: &'a mut Gradients,
}

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = param.val().grad_remove(self.gradients) else { return };
        let sum = match self.set.gradients.remove(&param.id) {
            None => {
                self.set.order.push(param.id);
                gradient
            }
            Some(sum) => Tensor::<D>::from_dispatch(sum) + gradient,
        };
        self.set.gradients.insert(param.id, sum.into_dispatch());
    }
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
