//! [`gradient_histogram`]: counts the gradients of one backward by their size.

use std::cell::RefCell;
use std::rc::Rc;

use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};

use crate::measure::{GradientHistogram, Magnitudes};
use crate::ops::function::observe_gradients;
use crate::ops::wide;

/// Counts the gradients that `backward` computes, which is given the loss times `scale`.
pub fn gradient_histogram<M: Module>(
    module: &M,
    scale: f64,
    backward: impl FnOnce() -> Gradients,
) -> GradientHistogram {
    let activations = Rc::new(RefCell::new(Magnitudes::default()));
    let seen = activations.clone();
    let gradients = observe_gradients(move |gradient| count(&mut seen.borrow_mut(), gradient), backward);
    let mut parameters = Magnitudes::default();
    module.visit(&mut Collect { magnitudes: &mut parameters, gradients: &gradients });
    GradientHistogram { scale, activations: activations.take(), parameters }
}

fn count(magnitudes: &mut Magnitudes, gradient: DispatchTensor) {
    let gradient = Tensor::<1>::from_dispatch(gradient);
    let elements = gradient.shape().num_elements();
    // The loss's own gradient is the scale.
    if elements > 1 {
        let data = wide(gradient.reshape([elements])).into_data();
        magnitudes.add(data.as_slice().expect("fp32"));
    }
}

struct Collect<'a> {
    magnitudes: &'a mut Magnitudes,
    gradients: &'a Gradients,
}

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            count(self.magnitudes, gradient.into_dispatch());
        }
    }
}
