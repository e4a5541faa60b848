//! [`Leaves`]: the parameters of a block in a graph of its own.
//!
//! Backward differentiates with respect to leaves that are views of the slot, so that no node of the graph refers to the slot
//! after the turn of a block that moves.

use burn::backend::DispatchTensor;
use burn::tensor::{Gradients, Tensor};

use super::engine::Pass;
use super::offloaded::Offloaded;
use crate::params::source::Source;

pub struct Leaves {
    blocks: Offloaded,
    block: usize,
    /// In the layout's order: trainable ones first, then frozen ones, which are constants.
    tensors: Vec<Tensor<1>>,
    trainable: usize,
}

impl Leaves {
    /// Brings a block to the device.
    pub fn new(blocks: &Offloaded, block: usize, pass: Pass) -> Self {
        let parameters = blocks.engine().enter(block, pass);
        let trainable = blocks.engine().layout(block).trainable;
        // The rank of a tensor is a mark on its type alone.
        let leaf = |(part, tensor)| match Tensor::<1>::from_dispatch(tensor).autodiff() {
            tensor if part < trainable => tensor.require_grad(),
            tensor => tensor,
        };
        let tensors = parameters.into_iter().enumerate().map(leaf).collect();
        Self { blocks: blocks.clone(), block, tensors, trainable }
    }

    pub fn source(&self) -> Source {
        let tensors: Vec<_> = self.tensors.iter().map(|leaf| leaf.clone().into_dispatch()).collect();
        self.blocks.source(self.block, &tensors)
    }

    /// Hands the gradients over, and ends the block's turn.
    ///
    /// # Panics
    /// As [`gradients`](Self::gradients).
    pub fn end(self, found: &mut Gradients) {
        let (blocks, block) = (self.blocks.clone(), self.block);
        let gradients = self.gradients(found);
        let mut engine = blocks.engine();
        engine.take_gradients(block, gradients);
        engine.leave(block);
    }

    /// The gradients of the trainable parameters, in the layout's order.
    ///
    /// # Panics
    /// When one has no gradient.
    pub fn gradients(self, found: &mut Gradients) -> Vec<DispatchTensor> {
        let Self { blocks, block, tensors, trainable } = self;
        let gradient = |(part, leaf): (usize, Tensor<1>)| {
            let missing = || {
                let layout = blocks.engine().layout(block).clone();
                panic!("{} of block {block} has no gradient", layout.parts[part].name)
            };
            leaf.grad_remove(found).unwrap_or_else(missing).into_dispatch()
        };
        tensors.into_iter().take(trainable).enumerate().map(gradient).collect()
    }
}
