//! A resident block that keeps its graph for backward: nothing moves, and nothing is computed again.

use burn::tensor::Tensor;

use crate::ops::checkpoint::{differentiate, entrance};
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::residence::engine::Pass;
use crate::residence::leaves::Leaves;
use crate::residence::offloaded::{Compute, Offloaded};

/// Computes x, [tokens, hidden_size], through one block, in a graph of its own on views of its slot, which keeps its content
/// until the update. The block has turns like any other, behind which copies of other blocks go on.
pub fn resident(blocks: &Offloaded, block: usize, x: Tensor<2>, compute: &Compute) -> Tensor<2> {
    custom(OperatorName::Offload, [x.into_dispatch()], |[x]| {
        let x = Tensor::<2>::from_dispatch(x).autodiff().require_grad();
        let leaves = Leaves::new(blocks, block, Pass::Forward);
        let y = compute(block, &leaves.source(), entrance(x.clone()));
        blocks.engine().leave(block);
        let (result, blocks) = (y.clone().inner(), blocks.clone());
        let backward = move |gradient: Tensor<2>, _: [bool; 1]| {
            blocks.engine().enter(block, Pass::Backward);
            let mut found = differentiate(y, gradient);
            let dx = x.grad_remove(&mut found);
            leaves.end(&mut found);
            [dx.map(Tensor::into_dispatch)]
        };
        (result, backward)
    })
}
