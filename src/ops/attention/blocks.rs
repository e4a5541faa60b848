//! Attention and its backward, block of queries by block of queries.

use std::ops::Range;

use burn::tensor::{DType, Tensor};

use super::softmax::{Rows, masked_softmax, masked_softmax_backward};
use super::{Columns, Heads, Mask, Places, Scores};
use crate::device;
use crate::ops::dense::Arithmetic;
use crate::ops::product::{plain, product, product_into, transpose};

/// Bytes of one block's fp32 scores.
const BLOCK_BYTES: usize = 192 << 20;

/// q [batch · kv_heads, queries · group, head_dim], k and v [batch · kv_heads, keys, head_dim], in the
/// compute type.
pub struct Split {
    pub q: Tensor<3>,
    pub k: Tensor<3>,
    pub v: Tensor<3>,
    /// The queries' heads.
    pub heads: Heads,
    /// Queries of a block; `None`: as many as [`block`] says.
    pub block: Option<usize>,
}

impl Split {
    /// From tensors with a token a row, in the compute type: for q, k and v each, the tensor and the column where
    /// it begins. With `places`, only of the tokens that these name.
    pub fn new(inputs: &[Tensor<2>], columns: Columns, heads: Heads, places: Option<&Places>) -> Self {
        let part = |heads: &Heads, i: usize| {
            let (tensor, column) = columns[i];
            heads.split(inputs[tensor].clone(), column, places)
        };
        let keys = heads.of_keys();
        Self { q: part(&heads, 0), k: part(&keys, 1), v: part(&keys, 2), heads, block: None }
    }

    fn blocks(&self) -> impl DoubleEndedIterator<Item = Block> + use<> {
        let Heads { batch, sequence, kv_heads, group, scores, .. } = self.heads;
        let keys = self.k.dims()[1];
        let size =
            self.block.unwrap_or_else(|| block(batch, kv_heads * group, sequence, keys, scores.window));
        blocks(size, sequence, keys, scores)
    }

    /// Rows of q of a block of positions.
    fn query_rows(&self, block: &Block) -> Range<usize> {
        block.queries.start * self.heads.group..block.queries.end * self.heads.group
    }

    fn rows<'a>(&self, block: &Block, mask: &'a Mask) -> Rows<'a> {
        let past = self.k.dims()[1] - self.heads.sequence;
        let (first, first_key) = (past + block.queries.start, block.keys.start);
        Rows { first, first_key, heads: self.heads, mask }
    }

    /// QKᵀ, [batch · kv_heads, block · group, keys] in fp32.
    fn products(&self, block: &Block, arithmetic: Arithmetic) -> Tensor<3> {
        let q = plain(self.q.clone()).rows(self.query_rows(block));
        product(q, transpose(self.k.clone()).rows(block.keys.clone()), DType::F32, arithmetic.math)
    }
}

/// Queries of a block, and the keys that some of them see.
struct Block {
    queries: Range<usize>,
    keys: Range<usize>,
}

impl Block {
    /// Scores of a head of a sequence.
    fn scores(&self) -> usize {
        self.queries.len() * self.keys.len()
    }
}

/// Blocks of `size` of the last `sequence` positions of so many keys.
fn blocks(
    size: usize,
    sequence: usize,
    keys: usize,
    scores: Scores,
) -> impl DoubleEndedIterator<Item = Block> + use<> {
    let past = keys - sequence;
    (0..sequence.div_ceil(size)).map(move |i| {
        let queries = i * size..sequence.min((i + 1) * size);
        let first = scores.first_key(past + queries.start) / ALIGNED * ALIGNED;
        Block { keys: first..past + queries.end, queries }
    })
}

/// A multiple of as many keys as keeps rows aligned.
const ALIGNED: usize = 64;

/// Elements of scores below which a smaller block costs more in launches than it saves in arithmetic: at
/// 64 MiB in fp32 a pass over them takes some 20 µs on an H200, as long as the launch of its products.
const WORTH_A_LAUNCH: usize = 16 << 20;

/// Queries of a block: few enough that its scores fit [`BLOCK_BYTES`], and at most a quarter of a long
/// sequence, since a causal block needs no keys after its last query: with four blocks 5/8 of the
/// square is computed. A block of b queries with a window takes b + window keys: at most a quarter of it, or as many as
/// make (launch + heads · b · (b + window)) / b least.
pub fn block(batch: usize, heads: usize, sequence: usize, keys: usize, window: Option<usize>) -> usize {
    let heads = (batch * heads).max(1);
    let causal = sequence.div_ceil(4).max(WORTH_A_LAUNCH.div_ceil(heads * keys.max(1)));
    let (wanted, reach) = match window.filter(|window| *window < keys) {
        None => (causal, keys.max(1)),
        Some(window) => {
            let wanted = window.div_ceil(4).max((WORTH_A_LAUNCH / heads).isqrt()).min(causal);
            (wanted, keys.min(wanted + window + 2 * ALIGNED))
        }
    };
    let fitting = (BLOCK_BYTES / (4 * heads * reach)).max(1);
    let size = wanted.next_multiple_of(ALIGNED).min(fitting);
    // A multiple that keeps rows aligned, where the block is long enough.
    if size > ALIGNED { size / ALIGNED * ALIGNED } else { size }
}

/// The result, shaped as q. The last query stands at the last key.
pub fn attend(split: &Split, mask: &Mask, arithmetic: Arithmetic) -> Tensor<3> {
    let mut o = split.q.empty_like();
    for block in split.blocks() {
        let products = split.products(&block, arithmetic);
        let p = masked_softmax(products, &split.rows(&block, mask), arithmetic.dtype);
        let v = plain(split.v.clone()).rows(block.keys.clone());
        o = product_into(o, split.query_rows(&block), false, plain(p), v, arithmetic.math);
    }
    o
}

/// From the gradient of the result: dq in the compute type, dk and dv in fp32, shaped as in `split`.
pub fn attend_backward(split: Split, g: Tensor<3>, mask: &Mask, arithmetic: Arithmetic) -> [Tensor<3>; 3] {
    let Arithmetic { dtype, math } = arithmetic;
    let mut dq = split.q.empty_like();
    // Without a window the last block sees every key: it writes dk and dv, and the others add to them.
    let windowed = split.heads.scores.within(split.heads.sequence).window.is_some();
    let fp32 = || {
        let (dims, options) = (split.k.dims(), (&split.k.device(), DType::F32));
        if windowed { device::zeros(dims, options) } else { Tensor::empty(dims, options) }
    };
    let (mut dk, mut dv) = (fp32(), fp32());
    for (i, block) in split.blocks().rev().enumerate() {
        let (keys, queries, add) = (block.keys.clone(), split.query_rows(&block), windowed || i > 0);
        let products = split.products(&block, arithmetic);
        let g = || plain(g.clone()).rows(queries.clone());
        let dp = product(g(), transpose(split.v.clone()).rows(keys.clone()), DType::F32, math);
        let (p, ds) = masked_softmax_backward(products, dp, &split.rows(&block, mask), dtype);
        dv = product_into(dv, keys.clone(), add, transpose(p), g(), math);
        let k = plain(split.k.clone()).rows(keys.clone());
        dq = product_into(dq, queries.clone(), false, plain(ds.clone()), k, math);
        let q = plain(split.q.clone()).rows(queries);
        dk = product_into(dk, keys, add, transpose(ds), q, math);
    }
    [dq, dk, dv]
}

/// The number of blocks of a sequence, and the elements of the scores of the largest, of one head.
pub fn block_sizes(batch: usize, heads: usize, sequence: usize, scores: Scores) -> (usize, usize) {
    let size = block(batch, heads, sequence, sequence, scores.window);
    let sizes = || blocks(size, sequence, sequence, scores).map(|block| block.scores());
    (sizes().count(), sizes().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 heads of 16 sequences of 1000 tokens: 128 000 scores in fp32 a query, of which 192 MiB hold 393, and a
    /// quarter of the sequence is 250; 256 of them are a block, whose last whole one ends at 768.
    #[test]
    fn the_largest_block_sees_the_most_keys() {
        let sizes = |batch, heads, sequence| block_sizes(batch, heads, sequence, Scores::default());
        assert_eq!(block(16, 8, 1000, 1000, None), 256);
        assert_eq!(sizes(16, 8, 1000), (4, (1000 - 768) * 1000));
        assert_eq!(sizes(16, 8, 800), (4, 256 * 768));
        // Short sequences are one block.
        assert_eq!(sizes(2, 2, 100), (1, 100 * 100));
    }
}
