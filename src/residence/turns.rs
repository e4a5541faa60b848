//! [`Turns`]: blocks that come to the device for their turns, wherever they live between turns.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;

use super::activations::Input;
use super::engine::Pass;
use super::layout::Layout;
use super::store::ParameterStore;
use super::strategy::Movement;
use crate::optim::host::Work;
use crate::optim::{Optimizer, OptimizerConfig};

/// Between two passes: what slots hold, and what is known of gradients. A graph repeats copies from and to the same places, so
/// every replay begins with the blocks in the slots in which its recording began, and leaves them where it ended.
#[derive(Clone, Default)]
pub struct SlotState {
    /// By slot for weights: the block that it holds.
    pub held: Vec<Option<usize>>,
    /// By block: whether it has gradients of this step.
    pub summed: Vec<bool>,
    /// By block: the sum of its squared gradients, if it is wanted.
    pub squares: Vec<Option<Tensor<1>>>,
}

/// One block has its turn at a time, between [`enter`](Self::enter) and [`leave`](Self::leave).
pub trait Turns: ParameterStore + Send {
    /// Takes over the blocks' updates, before the first backward. `optimizer`: of the network's other parameters; its worker
    /// on the host also serves blocks.
    fn begin(&mut self, config: &OptimizerConfig, optimizer: &Optimizer);

    /// Whether squares of gradients are added up from now on, unless that is done anyway.
    fn want_squares(&mut self, _wanted: bool) {}

    /// Brings a block to the device, and begins to bring those that come ahead of their turns. Returns the block's parameters
    /// in the layout's order, outside of autodiff.
    fn enter(&mut self, block: usize, pass: Pass) -> Vec<DispatchTensor>;

    /// Ends a block's turn.
    fn leave(&mut self, block: usize);

    /// Takes a block's gradients, during its turn in backward or after it, for its trainable parameters in the layout's
    /// order, and adds them to those of earlier micro-batches.
    fn take_gradients(&mut self, block: usize, gradients: Vec<DispatchTensor>);

    /// Forgets the gradients so far.
    fn discard(&mut self);

    fn layout(&self, block: usize) -> &Arc<Layout>;

    fn movement(&self) -> Arc<dyn Movement>;

    /// Moves blocks in another way from now on, if they can.
    fn follow(&mut self, _movement: Arc<dyn Movement>) {}

    /// From now on until the update, gradients are the last of this step: updates may begin as they arrive.
    fn update_on_arrival(&mut self, _work: Work) {}

    /// If inputs of blocks wait on the host, makes buffers for inputs of up to `elements` elements.
    ///
    /// # Panics
    /// When the host or the device does not have enough memory.
    fn make_room(&mut self, _elements: usize) {}

    /// Keeps a block's input for backward.
    fn keep(&mut self, _block: usize, x: Tensor<2>) -> Input {
        Input::OnDevice(Box::new(x))
    }

    /// The input that was kept; it may be read until it is [released](Self::release_input).
    fn restore(&mut self, _block: usize, input: Input) -> Tensor<2> {
        match input {
            Input::OnDevice(x) => *x,
            Input::OnHost(_) => unreachable!("kept by the same blocks"),
        }
    }

    /// Where the blocks are; the default where nothing is recorded.
    fn slot_state(&self) -> SlotState {
        SlotState::default()
    }

    /// Brings the slots to where they were, and forgets the gradients since. Ends with all copies settled.
    fn return_to(&mut self, _state: &SlotState) {}

    /// After [`return_to`](Self::return_to): what follows may be recorded as a graph, if all copies are settled at its end.
    fn fork(&mut self) {}

    /// Notes where a replayed graph has left the blocks. What follows comes after the graph.
    fn join(&mut self, _state: &SlotState) {}

    /// The block's input is no longer needed.
    fn release_input(&mut self, _block: usize) {}
}
