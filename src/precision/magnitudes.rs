//! [`gradient_histogram`]: counts the gradients of one backward by their size.

use std::cell::RefCell;
use std::rc::Rc;

use burn::backend::DispatchTensor;
use burn::module::Module;
use burn::tensor::Gradients;

use crate::measure::{GradientHistogram, Magnitudes};
use crate::ops::function::observe_gradients;
use crate::ops::parameters::{each_parameter, flat};
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
    each_parameter(module, |_, parameter| {
        if let Some(gradient) = parameter.grad(&gradients) {
            count(&mut parameters, gradient.into_dispatch());
        }
    });
    GradientHistogram { scale, activations: activations.take(), parameters }
}

/// Elements that are read at once: 4 MiB in fp32, little beside the gradient of an embedding.
const PART: usize = 1 << 20;

fn count(magnitudes: &mut Magnitudes, gradient: DispatchTensor) {
    let gradient = flat(gradient);
    let elements = gradient.dims()[0];
    // The loss's own gradient is the scale.
    if elements > 1 {
        for start in (0..elements).step_by(PART) {
            let part = gradient.clone().narrow(0, start, PART.min(elements - start));
            magnitudes.add(wide(part).into_data().as_slice().expect("fp32"));
        }
    }
}
