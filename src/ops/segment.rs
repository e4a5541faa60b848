//! [`in_segments`]: modules one after the other, of which only the input of each segment is kept (Chen et al. 2016,
//! "Training Deep Nets with Sublinear Memory Cost").

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};

use super::checkpoint::checkpoint;
use super::function::relay;

/// x through all modules by `forward`. From forward to backward every `size` of them, and the rest, keep their
/// input alone, and backward computes them again; with 0, or outside of autodiff, nothing is computed twice.
/// Gradients are those without segments, of the modules' own parameters.
pub fn in_segments<const D: usize, M: Module + 'static>(
    modules: &[M],
    size: usize,
    x: Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D> {
    let through = move |modules: &[M], x| modules.iter().fold(x, |x, module| forward(module, x));
    if size == 0 || !x.is_autodiff() {
        return through(modules, x);
    }
    modules.chunks(size).fold(x, |x, modules| segment(modules.to_vec(), x, through.clone()))
}

fn segment<const D: usize, M: Module + 'static>(
    modules: Vec<M>,
    x: Tensor<D>,
    through: impl Fn(&[M], Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D> {
    let found = Found::default();
    let mut outlets = Outlets { x: Some(x), found: found.clone() };
    modules.visit(&mut outlets);
    let x = outlets.x.expect("every outlet gives it back");
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
        move |leaves, gradients| leaves.visit(&mut Collect { gradients, found }),
    )
}

/// The gradients of a segment's parameters, from its backward to the graph around it.
type Found = Arc<Mutex<HashMap<ParamId, DispatchTensor>>>;

/// Ties parameters to a segment's input: behind the segment's backward each gets its gradient.
struct Outlets<const D: usize> {
    x: Option<Tensor<D>>,
    found: Found,
}

impl<const D: usize> ModuleVisitor for Outlets<D> {
    fn visit_float<const P: usize>(&mut self, param: &Param<Tensor<P>>) {
        let parameter = param.val();
        if parameter.is_require_grad() {
            let (id, found) = (param.id, self.found.clone());
            let inputs = [self.x.take().expect("one outlet after the other").into_dispatch(), parameter.into_dispatch()];
            self.x = Some(relay(inputs, |[x, _]| {
                let backward = move |gradient: Tensor<D>, _: [bool; 2]| {
                    [Some(gradient.into_dispatch()), found.lock().expect("no panic").remove(&id)]
                };
                (Tensor::from_dispatch(x), backward)
            }));
        }
    }
}

/// Takes the gradients of parameters out of what backward gave.
struct Collect<'a> {
    gradients: &'a mut Gradients,
    found: Found,
}

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const P: usize>(&mut self, param: &Param<Tensor<P>>) {
        if let Some(gradient) = param.val().grad_remove(self.gradients) {
            self.found.lock().expect("no panic").insert(param.id, gradient.into_dispatch());
        }
    }
}
