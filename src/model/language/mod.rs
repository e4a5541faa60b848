//! Causal language models: what they read, and what training and generation need of them.

mod cache;
mod gpt2;
mod llama;
pub mod memory;
mod parts;
mod stack;
mod training;

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

pub use cache::Cache;
pub use gpt2::{Gpt2, shape as gpt2_shape};
pub use llama::{Llama, shape as llama_shape};

use crate::ops::attention::{Heads, Mask, attend_cached, attention};
use crate::ops::dense::Arithmetic;
use crate::ops::embedding::Ids;
use crate::ops::{Level, Ops};
use crate::residence::Blocks;

/// How a network computes: the same weights, other arithmetic or other operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computation {
    pub arithmetic: Arithmetic,
    pub ops: Ops,
    pub level: Level,
}

/// Token ids of `batch` sequences of equal length, one after the other.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// [batch · sequence]
    pub ids: Ids,
    /// Of each token within its sample, [batch · sequence].
    pub positions: Ids,
    pub batch: usize,
    /// Tokens of one sequence.
    pub sequence: usize,
    pub mask: Mask,
}

impl Tokens {
    /// Whole sequences without padding.
    pub fn new(ids: &[u32], batch: usize, device: &Device) -> Self {
        let sequence = ids.len() / batch;
        let positions: Vec<i32> = (0..batch).flat_map(|_| 0..sequence as i32).collect();
        Self {
            ids: Ids::new(ids.iter().map(|id| *id as i32).collect(), device),
            positions: Ids::new(positions, device),
            batch,
            sequence,
            mask: Mask::default(),
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

/// A decoder that predicts the next token.
pub trait LanguageNetwork: Module + Sized {
    /// Layers that attend.
    fn layers(&self) -> usize;

    fn computation(&self) -> &Computation;

    /// The blocks that live on the host; `None` where all are on the device.
    fn offloaded(&self) -> Option<&Blocks>;

    /// What the head reads, [batch · sequence, hidden_size]. With a cache, `tokens` are those after the
    /// cached ones, and the mask covers all.
    fn hidden(&self, tokens: &Tokens, cache: Option<&mut Cache>) -> Tensor<2>;

    /// [vocab, hidden_size]
    fn head(&self) -> &Param<Tensor<2>>;

    /// [tokens, vocab] in fp32, of these rows of what [`hidden`](Self::hidden) gives.
    fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        use crate::ops::product::{plain, product, transpose};
        let Arithmetic { dtype, math } = self.computation().arithmetic.in_region();
        let cast = |t: Tensor<2>| t.inner().cast(burn::tensor::FloatDType::from(dtype));
        let (hidden, head) = (cast(hidden), cast(self.head().val()));
        product(plain(hidden), transpose(head), burn::tensor::DType::F32, math)
    }
}

/// q, k and v of new tokens through attention, with or without a cache of those before.
fn attend(
    layer: usize,
    [q, k, v]: [Tensor<2>; 3],
    heads: Heads,
    mask: &Mask,
    computation: &Computation,
    cache: Option<&mut Cache>,
) -> Tensor<2> {
    let Computation { arithmetic, ops, .. } = *computation;
    match cache {
        None => attention(q, k, v, heads, mask, arithmetic, ops.attention),
        Some(cache) => {
            let (k, v, keys) = cache.extend(layer, k.inner(), v.inner());
            attend_cached(q.inner(), k, v, heads, keys, mask, arithmetic)
        }
    }
}
