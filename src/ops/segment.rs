//! [`in_segments`]: modules one after the other, in segments that keep their input alone (Chen et al. 2016,
//! "Training Deep Nets with Sublinear Memory Cost").

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::Tensor;

use super::checkpoint::checkpoint;
use super::function::custom;
use super::gate::gate;
use super::parameters::each_parameter;

/// x through all modules by `forward`. Each segment has `size` modules, the last one perhaps fewer, and keeps its input
/// alone: backward computes it again. With 0, or outside of autodiff, nothing is computed twice. The gradients are the
/// same without segments, and belong to the modules' own parameters.
pub fn in_segments<const D: usize, M: Module + 'static>(
    modules: &[M],
    size: usize,
    x: Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D> {
    let through = move |modules: &[M], x| modules.iter().fold(x, |x, module| forward(module, x));
    if size == 0 || !x.is_autodiff() {
        return modules.iter().fold(x, |x, module| {
            through(std::slice::from_ref(module), gate(x, std::slice::from_ref(module)))
        });
    }
    modules.chunks(size).fold(x, |x, modules| segment(modules.to_vec(), gate(x, modules), through.clone()))
}

fn segment<const D: usize, M: Module + 'static>(
    modules: Vec<M>,
    x: Tensor<D>,
    through: impl Fn(&[M], Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D> {
    // The gradients of the segment's parameters, from its backward to the graph around it.
    let found = FoundGradients::default();
    let mut tied = Some(x);
    each_parameter(&modules, |id, parameter| {
        if parameter.is_require_grad() {
            tied = tied.take().map(|x| tie(x, id, parameter, found.clone()));
        }
    });
    let x = tied.expect("every tie gives it back");
    // In the same memory, outside of the graph around the segment; again as leaves of the segment's own.
    let constants = modules.valid();
    let (again, inputs) = (through.clone(), constants.clone());
    checkpoint(
        x,
        |x| through(&constants, x),
        move |x| {
            let leaves = inputs.train();
            (again(&leaves, x), leaves)
        },
        move |leaves, gradients| {
            each_parameter(&leaves, |id, leaf| {
                if let Some(gradient) = leaf.grad_remove(gradients) {
                    found.lock().expect("no panic").insert(id, gradient.into_dispatch());
                }
            });
        },
    )
}

type FoundGradients = Arc<Mutex<HashMap<ParamId, DispatchTensor>>>;

/// Returns x, a segment's input, from an operator that a parameter is an input of too: the parameter gets its gradient once
/// the segment's backward has run.
fn tie<const D: usize>(x: Tensor<D>, id: ParamId, parameter: Tensor<1>, found: FoundGradients) -> Tensor<D> {
    custom(None, [x.into_dispatch(), parameter.into_dispatch()], |[x, _]| {
        let backward = move |gradient: Tensor<D>, _: [bool; 2]| {
            [Some(gradient.into_dispatch()), found.lock().expect("no panic").remove(&id)]
        };
        (Tensor::from_dispatch(x), backward)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::module::Param;

    use super::*;
    use crate::ops::function::observe_gradients;
    use crate::ops::name::OperatorName;
    use crate::ops::testing::random;

    /// y = x · scale · weight with a frozen scale.
    #[derive(Module, Debug)]
    struct Scaling {
        weight: Param<Tensor<2>>,
        scale: Param<Tensor<2>>,
    }

    impl Scaling {
        fn new(seed: u64) -> Self {
            let [weight, scale] = [seed, seed + 100].map(|seed| random::<2>([3, 5], seed).inner());
            Self {
                weight: Param::initialized(ParamId::new(), weight.autodiff().require_grad()),
                scale: Param::initialized(ParamId::new(), scale.autodiff()),
            }
        }

        fn forward(&self, x: Tensor<2>) -> Tensor<2> {
            let [scale, weight] = [self.scale.val(), self.weight.val()].map(Tensor::into_dispatch);
            custom(OperatorName::Linear, [x.into_dispatch(), scale, weight], |[x, scale, weight]| {
                let [x, scale, weight] = [x, scale, weight].map(Tensor::<2>::from_dispatch);
                let y = x.clone() * scale.clone() * weight.clone();
                let backward = move |g: Tensor<2>, wanted: [bool; 3]| {
                    let [g, dx, dw] = [g.clone(), g.clone() * scale.clone() * weight, g * scale * x]
                        .map(Tensor::into_dispatch);
                    [Some(dx), wanted[1].then_some(g), wanted[2].then_some(dw)]
                };
                (y, backward)
            })
        }
    }

    fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_to_vec().unwrap()
    }

    /// The result, the gradients of x and of the weights, and every gradient that an observer sees.
    fn outcome(modules: &[Scaling], size: usize, trains_x: bool) -> [Vec<Vec<f32>>; 3] {
        let x = random::<2>([3, 5], 9).inner().autodiff();
        let x = if trains_x { x.require_grad() } else { x };
        let y = in_segments(modules, size, x.clone(), Scaling::forward);
        let result = list(y.clone().inner());
        let seen = Rc::new(RefCell::new(Vec::new()));
        let inside = seen.clone();
        let see = move |gradient| inside.borrow_mut().push(list(Tensor::<1>::from_dispatch(gradient)));
        let mut found = observe_gradients(see, || y.square().sum().backward());
        let weights = modules.iter().map(|module| module.weight.val());
        let gradients: Vec<_> =
            weights.chain([x]).filter_map(|t| t.grad_remove(&mut found)).map(list).collect();
        assert!(modules.iter().all(|module| module.scale.val().grad_remove(&mut found).is_none()));
        // The scalar that a segment's own backward starts from is no result of an operator.
        let seen = seen.take().into_iter().filter(|values| values.len() > 1).collect();
        [vec![result], gradients, seen]
    }

    #[test]
    fn segments_of_any_size_give_the_same_gradients() {
        let modules: Vec<_> = (0..5).map(Scaling::new).collect();
        for trains_x in [true, false] {
            let expected = outcome(&modules, 0, trains_x);
            assert_eq!(expected[1].len(), 5 + usize::from(trains_x));
            assert_eq!(expected[2].len(), 5);
            for size in [1, 2, 3, 5, 8] {
                assert_eq!(outcome(&modules, size, trains_x), expected, "segments of {size}");
            }
        }
    }

    #[test]
    fn nothing_is_computed_again_without_a_backward() {
        let modules: Vec<_> = (0..5).map(Scaling::new).collect();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let forward = move |module: &Scaling, x| {
            counted.fetch_add(1, Ordering::Relaxed);
            module.forward(x)
        };
        let x = random::<2>([3, 5], 9).inner();
        let y = in_segments(&modules, 2, x.clone().autodiff(), forward.clone());
        assert_eq!(calls.swap(0, Ordering::Relaxed), 5);
        drop(y.sum().backward());
        assert_eq!(calls.swap(0, Ordering::Relaxed), 5);
        let plain = modules.valid();
        assert!(!in_segments(&plain, 2, x, forward).is_autodiff());
        assert_eq!(calls.load(Ordering::Relaxed), 5);
    }
}
