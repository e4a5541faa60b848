//! [`gate`]: the identity at the input of some modules. Its backward hands over their gradients, which are final by then:
//! the backward of everything behind the gate has run.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, DispatchKindConversion, DispatchTensor, DispatchTensorKind, Flex};
use burn::module::{Module, ParamId};
use burn::tensor::{Float, Tensor};
use burn_cubecl::Cube;

use super::backend::primitive;
use super::function::{consumed, erase, registered};
use super::parameters::each_parameter;

/// Gets the gradients of the trainable parameters of some modules, of those that have one. Where an operator takes the
/// parameter alone, its gradient may come later; that one stays where backward leaves it.
pub type Arrived = dyn Fn(Vec<(ParamId, DispatchTensor)>) + Send + Sync;

thread_local! {
    static ARRIVED: RefCell<Option<Arc<Arrived>>> = const { RefCell::new(None) };
}

/// Until it is dropped, the gates of a forward hand gradients to `arrived`.
pub struct Gates;

pub fn gates(arrived: Arc<Arrived>) -> Gates {
    ARRIVED.set(Some(arrived));
    Gates
}

impl Drop for Gates {
    fn drop(&mut self) {
        ARRIVED.set(None);
    }
}

/// Returns x. Until the next gate only these modules may compute with it.
pub fn gate<const D: usize, M: Module>(x: Tensor<D>, modules: &[M]) -> Tensor<D> {
    let Some(arrived) = ARRIVED.with_borrow(Clone::clone).filter(|_| x.is_autodiff()) else { return x };
    let mut parameters = Vec::new();
    modules.iter().for_each(|module| {
        each_parameter(module, |id, parameter| {
            if parameter.is_require_grad() {
                parameters.push((id, parameter.into_dispatch()));
            }
        });
    });
    let x = x.into_dispatch();
    let DispatchTensorKind::Autodiff(kind) = &x.kind else { return Tensor::from_dispatch(x) };
    match **kind {
        DispatchTensorKind::Cube(_) => on::<Cube, D>(x, parameters, arrived),
        DispatchTensorKind::Flex(_) => on::<Flex, D>(x, parameters, arrived),
        _ => unreachable!("the runner computes on Flex and CubeCL"),
    }
}

fn on<B, const D: usize>(
    x: DispatchTensor,
    parameters: Vec<(ParamId, DispatchTensor)>,
    arrived: Arc<Arrived>,
) -> Tensor<D>
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let x = primitive::<Autodiff<B>>(x);
    let node = x.node();
    let y = match Backward::<B, 1>::prepare::<NoCheckpointing>(Gate, [node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let take = move |grads: &mut Gradients| {
                let take = |(id, parameter)| {
                    let gradient = grads.remove::<B>(&primitive::<Autodiff<B>>(parameter))?;
                    Some((id, erase::<B>(gradient)))
                };
                arrived(parameters.into_iter().filter_map(take).collect());
            };
            prep.finish(Behind(Arc::new(Mutex::new(Some(Box::new(take))))), x.into_primitive())
        }
        OpsKind::UnTracked(prep) => prep.finish(x.into_primitive()),
    };
    Tensor::<D, Float>::from_primitive::<Autodiff<B>>(y)
}

type Take = Box<dyn FnOnce(&mut Gradients) + Send>;

/// Takes the gradients of the modules behind the gate, once.
#[derive(Clone)]
struct Behind(Arc<Mutex<Option<Take>>>);

impl fmt::Debug for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Behind")
    }
}

#[derive(Debug)]
struct Gate;

impl<B: Backend> Backward<B, 1> for Gate {
    type State = Behind;

    fn backward(self, ops: Ops<Behind, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        consumed(ops.node.id);
        let take = ops.state.0.lock().expect("no backward panicked").take();
        take.expect("a graph is differentiated once")(grads);
        let [parent] = ops.parents;
        if let Some(parent) = parent {
            registered(parent.id, parent.parents.is_empty());
            grads.register::<B>(parent.id, gradient);
        }
    }
}
