//! The operator's node in Burn's autodiff graph.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, tensor::FloatTensor};

use super::SwigluBackend;
use super::formula::{self, Inputs, Kept};
use super::gate::Gate;
use super::{level_of, math_of};
use crate::ops::linear::{Fp32Math, Matmul};

#[derive(Debug)]
struct SwigluBackward;

/// The parents' places in the graph (x, W, V, U) and what the level keeps.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    parents: [NodeId; 4],
    kept: Kept<B>,
    math: Fp32Math,
}

impl<B: Gate + Matmul> Backward<B, 4> for SwigluBackward {
    type State = State<B>;

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let State { parents, kept, math } = ops.state;
        let [x, w, v, u] = parents.map(|id| checkpointer.retrieve_node_output(id));
        let wanted = ops.parents.each_ref().map(|parent| parent.is_some());
        let computed = formula::backward::<B>(Inputs { x, w, v, u, kept, g }, wanted, math);
        for (parent, gradient) in ops.parents.into_iter().zip(computed) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B: SwigluBackend + Gate + Matmul, C: CheckpointStrategy> SwigluBackend for Autodiff<B, C> {
    fn swiglu(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        level: u32,
        tf32: bool,
    ) -> FloatTensor<Self> {
        let guards = [x.node(), w.node(), v.node(), u.node()];
        match Backward::<B, 4>::prepare::<C>(SwigluBackward, guards).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let parents = [&x, &w, &v, &u].map(|t| prep.checkpoint(t));
                let [x, w, v, u] = [x, w, v, u].map(|t| t.into_primitive());
                let math = math_of(tf32);
                let (y, kept) = formula::forward::<B>(x, w, v, u, level_of(level), math);
                prep.finish(State { parents, kept, math }, y)
            }
            OpsKind::UnTracked(prep) => {
                let [x, w, v, u] = [x, w, v, u].map(|t| t.into_primitive());
                prep.finish(B::swiglu(x, w, v, u, level, tf32))
            }
        }
    }
}
