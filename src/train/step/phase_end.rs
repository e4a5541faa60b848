//! [`PhaseEnd`]: what a step tells as it goes on.

use burn::tensor::Tensor;

use crate::measure::{Phase, Seconds};

/// The end of a phase, or of a graph.
pub enum PhaseEnd {
    Phase(Phase),
    /// Forward and backward of a micro-batch as one graph, with what backward takes of it.
    Graph(Seconds),
}

/// Is called at the end of each phase, or graph; after a forward with its loss, [1] in fp32.
pub type End<'e> = dyn FnMut(PhaseEnd, Option<Tensor<1>>) + 'e;
