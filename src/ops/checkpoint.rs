//! [`checkpoint`]: keeps the input of a part of a network and computes the part again in backward
//! (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").

use burn::tensor::{Gradients, Tensor};

use super::function::custom;
use crate::ops::autocast::{autocast, region};

/// y = f(x), which keeps x alone: `recompute` is f on the [`entrance`] of a fresh leaf, run when the gradient of y
/// arrives. Parameters that `recompute` uses must be leaves of its own; `gradients` then gets what
/// backward left for them. It runs in forward's autocast region. No tensor of the graph around this
/// operator may be used inside: backward would wait for itself.
pub fn checkpoint<const D: usize, State>(
    x: Tensor<D>,
    forward: impl FnOnce(Tensor<D>) -> Tensor<D>,
    recompute: impl FnOnce(Tensor<D>) -> (Tensor<D>, State) + Send + 'static,
    gradients: impl FnOnce(State, &mut Gradients) + Send + 'static,
) -> Tensor<D> {
    custom(None, [x.into_dispatch()], |[x]| {
        let x = Tensor::<D>::from_dispatch(x);
        let y = forward(x.clone());
        let region = region();
        let backward = move |gradient: Tensor<D>, _: [bool; 1]| {
            let x = x.autodiff().require_grad();
            let (y, state) = {
                let _region = autocast(region);
                recompute(entrance(x.clone()))
            };
            let mut found = differentiate(y, gradient);
            let dx = x.grad_remove(&mut found);
            gradients(state, &mut found);
            [dx.map(Tensor::into_dispatch)]
        };
        (y, backward)
    })
}

/// The values of a leaf as the result of an operator, for a part of a network in a graph of its own. Operators add to the
/// gradient of a result in their kernels, with the roundings that they have in the whole network's graph; the gradients of a
/// leaf are summed by Burn, apart.
pub fn entrance<const D: usize>(leaf: Tensor<D>) -> Tensor<D> {
    custom(None, [leaf.into_dispatch()], |[x]| {
        (Tensor::from_dispatch(x), |gradient: Tensor<D>, _: [bool; 1]| [Some(gradient.into_dispatch())])
    })
}

/// The gradients of what y was computed from, given the gradient of y.
pub fn differentiate<const D: usize>(y: Tensor<D>, gradient: Tensor<D>) -> Gradients {
    // The gradient of this scalar with respect to y is `gradient`: no product with it is summed.
    custom(None, [y.into_dispatch()], |[y]| {
        let scalar = Tensor::<1>::zeros([1], &Tensor::<D>::from_dispatch(y).device());
        (scalar, move |_: Tensor<1>, _: [bool; 1]| [Some(gradient.into_dispatch())])
    })
    .backward()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use std::sync::{Arc, Mutex};

    fn list(tensor: Tensor<1>) -> Vec<f32> {
        tensor.into_data().try_to_vec().unwrap()
    }

    /// y = x² w: dx = 2 x w g, dw = x² g.
    #[test]
    fn gradients_of_the_input_and_of_parameters_inside() {
        let device = Device::flex();
        let vector = |values: [f32; 2]| Tensor::<1>::from_floats(values, &device);
        let w = vector([5.0, 7.0]);
        let x = vector([2.0, 3.0]).autodiff().require_grad();
        let found = Arc::new(Mutex::new(Vec::new()));
        let (inside, sink) = (w.clone(), found.clone());
        let y = checkpoint(
            x.clone(),
            |x| x.square() * w,
            move |x| {
                let w = inside.autodiff().require_grad();
                (x.square() * w.clone(), w)
            },
            move |w, gradients| *sink.lock().unwrap() = list(w.grad_remove(gradients).unwrap()),
        );
        assert_eq!(list(y.clone().inner()), [20.0, 63.0]);
        let gradients = (y * vector([1.0, 10.0])).sum().backward();
        assert_eq!(list(x.grad(&gradients).unwrap()), [20.0, 420.0]);
        assert_eq!(*found.lock().unwrap(), [4.0, 90.0]);
    }
}
