//! The operators that give a block its turn, in forward and again in backward.
//!
//! All of them keep a block's input and nothing else, on the device or on the host. Backward is differentiated in a graph of its
//! own, on leaves made of the views of the slot, so that no node that outlives the turn refers to it.

use std::sync::{Arc, Mutex};

use burn::backend::{DispatchAutodiffContext, DispatchTensor};
use burn::tensor::{Gradients, Tensor};

use super::Blocks;
use super::blocks::{Compute, Input};
use super::engine::Pass;
use crate::ops::checkpoint::{checkpoint, differentiate};
use crate::ops::function::custom;

/// A block's parameters as leaves, in the layout's order.
struct Leaves(Vec<Tensor<1>>);

impl Leaves {
    fn new(parameters: Vec<DispatchTensor>) -> Self {
        // The rank of a tensor is a mark on its type alone.
        let leaf = |tensor| Tensor::<1>::from_dispatch(tensor).autodiff().require_grad();
        Self(parameters.into_iter().map(leaf).collect())
    }

    fn tensors(&self) -> Vec<DispatchTensor> {
        self.0.iter().map(|leaf| leaf.clone().into_dispatch()).collect()
    }

    /// # Panics
    /// When a parameter has no gradient.
    fn gradients(self, blocks: &Blocks, block: usize, found: &mut Gradients) -> Vec<DispatchTensor> {
        let gradient = |(part, leaf): (usize, Tensor<1>)| {
            let gradient = leaf.grad_remove(found);
            let lost = || panic!("{} has no gradient", blocks.name(block, part));
            gradient.unwrap_or_else(lost).into_dispatch()
        };
        self.0.into_iter().enumerate().map(gradient).collect()
    }
}

/// One operator: in, compute, out; in backward in, compute again, differentiate, gradients out, out.
pub fn offloaded(blocks: &Blocks, block: usize, x: Tensor<2>, compute: Compute) -> Tensor<2> {
    let blocks = blocks.clone();
    let x = x.into_dispatch();
    let has_backward = x.autodiff != DispatchAutodiffContext::Disabled;
    custom([x], move |[x]| {
        let x = Tensor::<2>::from_dispatch(x);
        let parameters = blocks.enter(block, Pass::Forward);
        let y = compute(block, &blocks.source(block, parameters), x.clone());
        blocks.leave(block);
        let input = if has_backward { blocks.keep(block, x) } else { Input::OnDevice(Box::new(x)) };
        let backward = move |gradient: Tensor<2>, _: [bool; 1]| {
            let leaves = Leaves::new(blocks.enter(block, Pass::Backward));
            let x = blocks.restore(block, input).autodiff().require_grad();
            let y = compute(block, &blocks.source(block, leaves.tensors()), x.clone());
            let mut found = differentiate(y, gradient);
            let dx = x.grad_remove(&mut found);
            blocks.take_gradients(block, leaves.gradients(&blocks, block, &mut found));
            blocks.release(block);
            blocks.leave(block);
            [dx.map(Tensor::into_dispatch)]
        };
        (y, backward)
    })
}

/// The general checkpoint between two operators that only move: the first brings the block in
/// forward and takes its gradients and the block out in backward, the second does the reverse.
pub fn checkpointed(blocks: &Blocks, block: usize, x: Tensor<2>, compute: Compute) -> Tensor<2> {
    // From the move in, forward or backward, to the computation.
    let inside: Arc<Mutex<Vec<DispatchTensor>>> = Arc::default();
    // From the computation's backward to the move out.
    let gradients: Arc<Mutex<Vec<DispatchTensor>>> = Arc::default();
    let take = |from: &Mutex<Vec<DispatchTensor>>| std::mem::take(&mut *from.lock().expect("no panic"));
    let put = |to: &Mutex<Vec<DispatchTensor>>, what| *to.lock().expect("no panic") = what;

    let x = {
        let (blocks, inside, gradients) = (blocks.clone(), inside.clone(), gradients.clone());
        moving(x, || put(&inside, blocks.enter(block, Pass::Forward)), {
            let blocks = blocks.clone();
            move || {
                blocks.take_gradients(block, take(&gradients));
                blocks.leave(block);
            }
        })
    };
    let (forward, again) = (compute.clone(), compute);
    let (outer, inner, named) = (blocks.clone(), blocks.clone(), blocks.clone());
    let (first, second) = (inside.clone(), inside.clone());
    let y = checkpoint(
        x,
        move |x| forward(block, &outer.source(block, take(&first)), x),
        move |x| {
            let leaves = Leaves::new(take(&second));
            (again(block, &inner.source(block, leaves.tensors()), x), leaves)
        },
        move |leaves, found| put(&gradients, leaves.gradients(&named, block, found)),
    );
    let back = blocks.clone();
    moving(y, || blocks.leave(block), move || put(&inside, back.enter(block, Pass::Backward)))
}

/// The identity, with something to do on its way in each direction.
fn moving(x: Tensor<2>, forward: impl FnOnce(), backward: impl FnOnce() + Send + 'static) -> Tensor<2> {
    custom([x.into_dispatch()], |[x]| {
        forward();
        let back = move |gradient: Tensor<2>, _: [bool; 1]| {
            backward();
            [Some(gradient.into_dispatch())]
        };
        (Tensor::<2>::from_dispatch(x), back)
    })
}
