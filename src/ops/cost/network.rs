//! [`Operators`]: the costs of a network's operators, and the parameters that they add up to.

use std::sync::Arc;

use super::{Cost, Tensors};

/// The costs of a block's operators, in the order of forward. Equal blocks mostly share them.
pub type BlockCosts = Arc<[Cost]>;

/// The operators of a network, in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    /// Before the blocks.
    pub first: Vec<Cost>,
    /// Of each block, by its number.
    pub blocks: Vec<BlockCosts>,
    /// After the blocks, the loss included.
    pub last: Vec<Cost>,
    /// Bytes of a micro-batch.
    pub batch: u64,
    /// Bytes, for each position, of tables that no step changes.
    pub tables: u64,
}

impl Operators {
    /// Number of blocks.
    pub fn layers(&self) -> usize {
        self.blocks.len()
    }

    pub fn parameters(&self) -> u64 {
        self.first.iter().chain(&self.last).map(|cost| cost.parameters).sum::<u64>()
            + self.parameters_of_blocks()
    }

    /// Of all blocks.
    pub fn parameters_of_blocks(&self) -> u64 {
        self.sums(|cost| cost.parameters).sum()
    }

    /// Bytes of the weights of a block, the most of all blocks.
    pub fn block_weights(&self) -> u64 {
        self.sums(|cost| cost.weights).max().unwrap_or(0)
    }

    /// Parameters that are trained, with those of adapters.
    pub fn trained(&self) -> u64 {
        self.trained_tensors(false).elements
    }

    /// Trained parameters of a block, the most of all blocks.
    pub fn block_trained(&self) -> u64 {
        self.sums(|cost| cost.trained.elements).max().unwrap_or(0)
    }

    /// Trained parameters of all blocks.
    pub fn trained_in_blocks(&self) -> u64 {
        self.sums(|cost| cost.trained.elements).sum()
    }

    /// Bytes of a block's input.
    pub fn block_input(&self) -> u64 {
        self.blocks.first().and_then(|block| block.first()).map_or(0, |cost| cost.input)
    }

    /// What is trained. The optimizer has blocks that move as one vector each.
    pub fn trained_tensors(&self, moves: bool) -> Tensors {
        let sum = |costs: &[Cost]| costs.iter().map(|cost| cost.trained).sum::<Tensors>();
        let blocks = self.blocks.iter().map(|block| if moves { sum(block).flat() } else { sum(block) });
        sum(&self.first) + sum(&self.last) + blocks.sum()
    }

    /// A number of each block, which adds up over its operators.
    pub fn sums(&self, number: fn(&Cost) -> u64) -> impl Iterator<Item = u64> {
        self.blocks.iter().map(move |block| block.iter().map(number).sum())
    }

    /// The same with other costs of the operators.
    #[must_use]
    pub fn map(self, change: impl Fn(Cost) -> Cost) -> Self {
        let all = |costs: Vec<Cost>| costs.into_iter().map(&change).collect();
        let blocks = each_once(&self.blocks, |block| block.iter().copied().map(&change).collect());
        Self { first: all(self.first), blocks, last: all(self.last), ..self }
    }

    /// The same of a step without a backward, in which nothing is trained.
    #[must_use]
    pub fn forward_alone(self) -> Self {
        self.map(Cost::forward_alone)
    }
}

/// What is made of each block's costs: once of those that blocks share.
pub fn each_once<T: Clone>(blocks: &[BlockCosts], make: impl Fn(&BlockCosts) -> T) -> Vec<T> {
    let mut known: Vec<(&BlockCosts, T)> = Vec::new();
    let of_block = |block| {
        let found = known.iter().find(|(other, _)| Arc::ptr_eq(other, block)).map(|(_, made)| made.clone());
        found.unwrap_or_else(|| {
            let made = make(block);
            known.push((block, made.clone()));
            made
        })
    };
    blocks.iter().map(of_block).collect()
}
