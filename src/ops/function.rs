//! [`custom`]: an operator with a hand-written backward, as one node of Burn's autodiff graph.
//!
//! An operator is written once for every backend, on tensors outside of the graph: a forward that
//! returns its result together with the function that computes the gradients. What that function
//! captures is what the operator keeps from forward to backward.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor,
    DispatchTensorKind, Flex,
};
use burn::tensor::{Float, Tensor};
use burn_cubecl::Cube;

use super::backend::primitive;
use super::name::OperatorName;

/// The gradient of each input; `None` where it is not wanted.
pub type InputGradients<const N: usize> = [Option<DispatchTensor>; N];

/// Runs the operator `name` of `N` inputs. `forward` gets the inputs outside of the graph and returns the
/// result and the backward: from the gradient of the result, and which inputs want theirs, to the
/// inputs' gradients. A gradient has the dtype of its input.
///
/// An operator without a name only hands on what others compute, and [`observe_gradients`] passes it over.
pub fn custom<const N: usize, const D: usize, F>(
    name: impl Into<Option<OperatorName>>,
    inputs: [DispatchTensor; N],
    forward: impl FnOnce([DispatchTensor; N]) -> (Tensor<D>, F),
) -> Tensor<D>
where
    F: FnOnce(Tensor<D>, [bool; N]) -> InputGradients<N> + Send + 'static,
{
    custom_adding(name, inputs, |inputs, _| {
        let (output, backward) = forward(inputs);
        (output, move |gradient, wanted, _: &mut Earlier<'_>| backward(gradient, wanted))
    })
}

/// What other operators have added up so far of an input's gradient, by the input's number; `None` where there is
/// nothing, or where it cannot be taken. What is taken must be in the gradient that backward returns.
pub type Earlier<'a> = dyn FnMut(usize) -> Option<DispatchTensor> + 'a;

/// As [`custom`], of an operator whose forward also gets which inputs want a gradient, and whose backward may add
/// to the gradient that an input has already, in the kernel that makes its own part.
pub fn custom_adding<const N: usize, const D: usize, F>(
    name: impl Into<Option<OperatorName>>,
    inputs: [DispatchTensor; N],
    forward: impl FnOnce([DispatchTensor; N], [bool; N]) -> (Tensor<D>, F),
) -> Tensor<D>
where
    F: FnOnce(Tensor<D>, [bool; N], &mut Earlier<'_>) -> InputGradients<N> + Send + 'static,
{
    let name = name.into();
    let Some(tracked) = inputs.iter().find(|t| t.autodiff != DispatchAutodiffContext::Disabled) else {
        let _scope = name.and_then(OperatorName::scope);
        return forward(inputs, [false; N]).0;
    };
    let DispatchTensorKind::Autodiff(kind) = &tracked.kind else {
        unreachable!("a float tensor with an autodiff context is an autodiff tensor")
    };
    match **kind {
        DispatchTensorKind::Cube(_) => on::<Cube, N, D, F>(name, inputs, forward),
        DispatchTensorKind::Flex(_) => on::<Flex, N, D, F>(name, inputs, forward),
        _ => unreachable!("the runner computes on Flex and CubeCL"),
    }
}

/// The same on one backend.
fn on<B, const N: usize, const D: usize, F>(
    name: Option<OperatorName>,
    inputs: [DispatchTensor; N],
    forward: impl FnOnce([DispatchTensor; N], [bool; N]) -> (Tensor<D>, F),
) -> Tensor<D>
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
    F: FnOnce(Tensor<D>, [bool; N], &mut Earlier<'_>) -> InputGradients<N> + Send + 'static,
{
    let inputs = inputs.map(|input| match input.autodiff {
        // A constant: it takes part without a gradient.
        DispatchAutodiffContext::Disabled => Autodiff::<B>::from_inner(primitive::<B>(input)),
        DispatchAutodiffContext::Enabled(_) => primitive::<Autodiff<B>>(input),
    });
    let guards = inputs.each_ref().map(|input| input.node());
    let wanted = inputs.each_ref().map(|input| input.is_tracked());
    let inner = inputs.map(|input| erase::<B>(input.into_primitive()));
    let scope = name.and_then(OperatorName::scope);
    let (output, backward) = forward(inner, wanted);
    drop(scope);
    let output = primitive::<B>(output.into_dispatch());
    let output =
        match Backward::<B, N>::prepare::<NoCheckpointing>(Node::<D>, guards).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let erased = move |gradient: DispatchTensor, wanted: &[bool], earlier: &mut Earlier<'_>| {
                    let wanted = std::array::from_fn(|i| wanted[i]);
                    backward(Tensor::from_dispatch(gradient), wanted, earlier).into()
                };
                let backward: ErasedBackward = Box::new(erased);
                prep.finish(State { backward: Arc::new(Mutex::new(Some(backward))), name }, output)
            }
            OpsKind::UnTracked(prep) => prep.finish(output),
        };
    Tensor::<D, Float>::from_primitive::<Autodiff<B>>(output)
}

type Seen = Box<dyn FnMut(DispatchTensor)>;

thread_local! {
    static OBSERVER: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread, and calls `seen` with the gradient of the result of each custom operator that is
/// differentiated during it, as backward hands it over.
pub fn observe_gradients<R>(seen: impl FnMut(DispatchTensor) + 'static, work: impl FnOnce() -> R) -> R {
    OBSERVER.set(Some(Box::new(seen)));
    let result = work();
    OBSERVER.set(None);
    result
}

type ErasedBackward =
    Box<dyn FnOnce(DispatchTensor, &[bool], &mut Earlier<'_>) -> Vec<Option<DispatchTensor>> + Send>;

/// Most nodes that [`ADDED`] remembers.
const MOST_ADDED: usize = 1 << 16;

thread_local! {
    /// Results of operators that custom operators have given a gradient, and whose own backward is still to come:
    /// Burn does not say whether a node has a gradient yet. What is forgotten is added by Burn.
    static ADDED: RefCell<HashSet<NodeId>> = RefCell::default();
}

/// The backward of one call, taken when it runs.
#[derive(Clone)]
struct State {
    backward: Arc<Mutex<Option<ErasedBackward>>>,
    /// `None`: [`observe_gradients`] does not see the gradient it gets.
    name: Option<OperatorName>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

/// The node of any custom operator whose result has rank `D`.
#[derive(Debug)]
struct Node<const D: usize>;

impl<B, const N: usize, const D: usize> Backward<B, N> for Node<D>
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = State;

    fn backward(self, ops: Ops<State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = erase::<B>(grads.consume::<B>(&ops.node));
        consumed(ops.node.id);
        OBSERVER.with_borrow_mut(|observer| {
            if let Some(seen) = observer.as_mut().filter(|_| ops.state.name.is_some()) {
                seen(gradient.clone());
            }
        });
        let backward = ops.state.backward.lock().expect("no backward panicked").take();
        let backward = backward.expect("a graph is differentiated once");
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let parents = &ops.parents;
        let mut earlier = |input: usize| {
            let parent = parents[input].as_ref()?;
            let added = ADDED.with_borrow_mut(|added| added.remove(&parent.id));
            added.then(|| erase::<B>(grads.consume::<B>(parent)))
        };
        let scope = ops.state.name.and_then(OperatorName::scope);
        let gradients = backward(gradient, &wanted, &mut earlier);
        drop(scope);
        // Where there is one already, the two are added.
        let _scope = OperatorName::GradientSums.scope();
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                registered(parent.id, parent.parents.is_empty());
                grads.register::<B>(parent.id, primitive::<B>(gradient));
            }
        }
    }
}

/// Notes that the backward of this node runs, and has its gradient.
pub(super) fn consumed(id: NodeId) {
    ADDED.with_borrow_mut(|added| added.remove(&id));
}

/// Notes that this node gets a gradient.
pub(super) fn registered(id: NodeId, is_leaf: bool) {
    if is_leaf {
        // It keeps its gradient, which cannot be taken.
        return;
    }
    ADDED.with_borrow_mut(|added| {
        // Nodes of Burn's operators stay, since nothing says when their backward has run.
        if added.len() == MOST_ADDED {
            added.clear();
        }
        added.insert(id);
    });
}

/// A tensor of any rank, without its backend's type.
pub(super) fn erase<B: Backend>(tensor: FloatTensor<B>) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B>,
{
    // The rank of a Burn tensor is a mark on its type alone.
    Tensor::<1, Float>::from_primitive::<B>(tensor).into_dispatch()
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
