//! [`Part`]: what a stage of a pipeline has of a network.

use std::ops::Range;

use burn::tensor::Tensor;

/// Consecutive blocks of a network. The first part also has the embedding, and the last one the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub blocks: Range<usize>,
    /// Whether it begins with the embedding.
    pub is_first: bool,
    /// Whether it ends with norm, head and loss.
    pub is_last: bool,
    /// Whether all of it is computed again in backward.
    pub is_recomputed: bool,
}

/// What a part computes.
#[derive(Clone)]
pub enum Output {
    /// The next part's input, [tokens, hidden_size].
    Hidden(Tensor<2>),
    /// The micro-batch's part of the step's mean loss, [1] in fp32.
    Loss(Tensor<1>),
}

/// The parts that a process has of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    #[default]
    Whole,
    Of(Vec<Part>),
}

impl Parts {
    pub fn has_block(&self, block: usize) -> bool {
        self.any(|part| part.blocks.contains(&block))
    }

    pub fn has_first(&self) -> bool {
        self.any(|part| part.is_first)
    }

    pub fn has_last(&self) -> bool {
        self.any(|part| part.is_last)
    }

    /// How many of the blocks before this one the process has.
    pub fn blocks_before(&self, block: usize) -> usize {
        (0..block).filter(|block| self.has_block(*block)).count()
    }

    fn any(&self, of: impl Fn(&Part) -> bool) -> bool {
        match self {
            Self::Whole => true,
            Self::Of(parts) => parts.iter().any(of),
        }
    }
}
