//! [`Context`]: what all blocks of a network compute with.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::{Computation, Seen, Stream};
use crate::model::architecture::{Attention, Rope};
use crate::ops::attention::{Heads, Mask};
use crate::ops::embedding::Ids;
use crate::ops::rope::Rotation;
use crate::ops::tensor_parallel::copy_to_ranks;
use crate::ops::virtual_tokens::VirtualRows;
use crate::world::ProcessGroup;

/// What all blocks of a network compute with, apart from their parameters and their input.
#[derive(Clone)]
pub struct Context {
    pub computation: Computation,
    pub batch: usize,
    /// Tokens of one sequence.
    pub sequence: usize,
    pub mask: Mask,
    /// Of each token within its sample, [batch · sequence].
    pub positions: Ids,
    /// Of every architecture's rope, once each.
    pub rotations: Arc<[(Rope, Rotation)]>,
    /// Which of the tokens are virtual.
    pub virtual_rows: Option<VirtualRows>,
    /// Of an encoder and a decoder.
    pub stream: Option<Stream>,
    /// By the layers of the block that computes now, where it is one of theirs.
    pub seen: Option<Seen>,
    /// Those that layers are divided among.
    pub ranks: ProcessGroup,
}

impl Context {
    /// x, which layers read whose outputs divide among ranks.
    pub fn copied(&self, x: Tensor<2>) -> Tensor<2> {
        copy_to_ranks(x, &self.ranks)
    }

    /// A rank's heads.
    pub fn heads(&self, attention: &Attention) -> Heads {
        Heads {
            batch: self.batch,
            sequence: self.sequence,
            kv_heads: attention.kv_heads / self.ranks.size(),
            group: attention.heads / attention.kv_heads,
            head_dim: attention.head_dim,
            scores: attention.scores,
        }
    }

    /// The rotation of a rope.
    ///
    /// # Panics
    /// When no layer of the network has it.
    pub fn rotation(&self, rope: &Rope) -> &Rotation {
        let (_, rotation) = self.rotations.iter().find(|(other, _)| other == rope).expect("the network's");
        rotation
    }
}
