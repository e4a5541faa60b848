//! Language models: their batches, their modules, and what training and generation need of them.

mod attention;
mod block;
mod cache;
mod context;
mod cost;
mod decoder;
mod head;
mod mlp;
mod norm;
mod parts;
mod positions;
mod prefix;
mod sizes;
mod stream;
mod stream_cost;
mod training;

use burn::tensor::{Bool, Device, Int, Tensor};

use attention::Attention;
use block::Block;
pub use cache::Cache;
use cache::LayerCache;
use context::Context;
pub use decoder::Decoder;
use mlp::Mlp;
use prefix::Prefix;
pub use sizes::DecoderSizes;
pub use stream::Stack;
use stream::{Seen, Stream};

/// Why a module that a process asks for is there.
const HERE: &str = "a process computes only the parts of the network that it has";

use crate::ops::attention::{Heads, Mask, attend_cached, attention};
use crate::ops::dense::Arithmetic;
use crate::ops::embedding::Ids;
use crate::ops::virtual_tokens::VirtualRows;
use crate::ops::{Checkpoint, Ops, narrow};

/// How a network computes: the same weights, other arithmetic or other operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computation {
    pub arithmetic: Arithmetic,
    pub ops: Ops,
    pub checkpoint: Checkpoint,
    /// The seed of this forward's dropout; `None`: nothing is dropped.
    pub masks: Option<u64>,
}

impl Computation {
    pub fn new(arithmetic: Arithmetic, ops: Ops, checkpoint: Checkpoint) -> Self {
        Self { arithmetic, ops, checkpoint, masks: None }
    }
}

/// Token ids of `batch` sequences of equal length, one after the other; of an encoder and a decoder those of all sources, and
/// then those of all targets.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// [batch · (source + sequence)]
    pub ids: Ids,
    /// Of each token within its sample, [batch · (source + sequence)].
    pub positions: Ids,
    /// Of an encoder.
    pub source: Option<SourceTokens>,
    pub batch: usize,
    /// Tokens of one sequence: of a target, where there are sources.
    pub sequence: usize,
    pub mask: Mask,
    /// Which of them are virtual; `None`: none.
    pub virtual_rows: Option<VirtualRows>,
}

/// The sequences that an encoder reads.
#[derive(Clone, Debug)]
pub struct SourceTokens {
    /// Tokens of one.
    pub sequence: usize,
    /// Which of them no other sees, [batch, sequence]; `None`: no source has any.
    pub padding: Option<Tensor<2, Bool>>,
}

impl Tokens {
    /// Whole sequences without padding.
    pub fn new(ids: &[u32], batch: usize, device: &Device) -> Self {
        let sequence = ids.len() / batch;
        let positions: Vec<i32> = (0..batch).flat_map(|_| 0..sequence as i32).collect();
        Self {
            ids: Ids::new(ids.iter().map(|id| *id as i32).collect(), device),
            positions: Ids::new(positions, device),
            source: None,
            batch,
            sequence,
            mask: Mask::default(),
            virtual_rows: None,
        }
    }
}

/// Sequences and what is to be predicted at each of their tokens.
#[derive(Clone, Debug)]
pub struct LmBatch {
    pub tokens: Tokens,
    /// The next token's id, or -100 where none is to be predicted, [batch · sequence].
    pub labels: Tensor<1, Int>,
    /// Labels that count in the whole step, over all its micro-batches.
    pub total: f64,
}

/// Attention of new tokens from their q, k and v, with or without a cache of the tokens before them.
fn attend(
    [q, k, v]: [Tensor<2>; 3],
    heads: Heads,
    context: &Context,
    cache: Option<LayerCache<'_>>,
) -> Tensor<2> {
    let Context { computation: Computation { arithmetic, ops, .. }, mask, .. } = context;
    match cache {
        None => attention(q, k, v, heads, mask, *arithmetic, ops.into()),
        Some(cache) => {
            let dtype = arithmetic.in_region().dtype;
            let (q, [k, v]) = (q.inner(), [k, v].map(|x| narrow(x.inner(), dtype)));
            // The first tokens attend to each other alone.
            let first = cache.is_empty().then(|| [k.clone(), v.clone()]);
            let (keys, values, tokens) = cache.extend(k, v);
            match first {
                Some([k, v]) => attention(q, k, v, heads, mask, *arithmetic, ops.into()),
                None => attend_cached(q, [keys, values], heads, tokens, mask, *arithmetic, ops.into()),
            }
        }
    }
}

#[cfg(test)]
mod adapter_tests;
#[cfg(test)]
mod frozen_tests;
