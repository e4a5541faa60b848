//! [`Operators`]: the costs of a network's operators, and the parameters that they add up to.

use super::{Cost, Tensors};

/// The operators of a network, in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    /// Before the blocks.
    pub first: Vec<Cost>,
    pub block: Vec<Cost>,
    pub blocks: usize,
    /// After the blocks, the loss included.
    pub last: Vec<Cost>,
    /// Bytes of a micro-batch.
    pub batch: u64,
    /// Bytes, for each position, of tables that no step changes.
    pub tables: u64,
}

impl Operators {
    pub fn parameters(&self) -> u64 {
        self.block_parameters() * self.blocks as u64
            + self.first.iter().chain(&self.last).map(|cost| cost.parameters).sum::<u64>()
    }

    pub fn block_parameters(&self) -> u64 {
        self.block.iter().map(|cost| cost.parameters).sum()
    }

    /// Bytes of one block's weights.
    pub fn block_weights(&self) -> u64 {
        self.block.iter().map(|cost| cost.weights).sum()
    }

    /// Parameters that are trained, with those of adapters: of all, and of one block.
    pub fn trained(&self) -> u64 {
        self.trained_tensors(false).elements
    }

    pub fn block_trained(&self) -> u64 {
        self.block.iter().map(|cost| cost.trained.elements).sum()
    }

    /// What is trained. The optimizer has blocks that move as one vector each.
    pub fn trained_tensors(&self, moves: bool) -> Tensors {
        let block: Tensors = self.block.iter().map(|cost| cost.trained).sum();
        let others: Tensors = self.first.iter().chain(&self.last).map(|cost| cost.trained).sum();
        others + if moves { block.flat() } else { block } * self.blocks as u64
    }

    /// The same of a step without a backward, in which nothing is trained.
    #[must_use]
    pub fn forward_alone(self) -> Self {
        let alone = |costs: Vec<Cost>| costs.into_iter().map(Cost::forward_alone).collect();
        let Self { first, block, last, .. } = self;
        Self { first: alone(first), block: alone(block), last: alone(last), ..self }
    }
}
