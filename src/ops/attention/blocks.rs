//! Attention and its backward, block of queries by block of queries.

use std::ops::Range;

use burn::tensor::{DType, Tensor};

use super::softmax::{Rows, masked_softmax, masked_softmax_backward};
use super::{Columns, Heads, Mask, Places};
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

    /// The queries' blocks, in rows of the sequence.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let (sequence, keys) = (self.heads.sequence, self.k.dims()[1]);
        let heads = self.heads.kv_heads * self.heads.group;
        let size = self.block.unwrap_or_else(|| block(self.heads.batch, heads, sequence, keys));
        (0..sequence.div_ceil(size)).map(move |i| i * size..sequence.min((i + 1) * size))
    }

    /// Rows of q of a block of positions.
    fn query_rows(&self, block: &Range<usize>) -> Range<usize> {
        block.start * self.heads.group..block.end * self.heads.group
    }

    fn rows<'a>(&self, block: &Range<usize>, past: usize, mask: &'a Mask) -> Rows<'a> {
        Rows { first: past + block.start, group: self.heads.group, kv_heads: self.heads.kv_heads, mask }
    }

    fn scale(&self) -> f64 {
        1.0 / (self.heads.head_dim as f64).sqrt()
    }

    /// [batch · kv_heads, block · group, keys] in fp32.
    fn scores(&self, block: &Range<usize>, keys: &Range<usize>, arithmetic: Arithmetic) -> Tensor<3> {
        let q = plain(self.q.clone()).rows(self.query_rows(block));
        product(q, transpose(self.k.clone()).rows(keys.clone()), DType::F32, arithmetic.math)
    }
}

/// Elements of scores below which a smaller block costs more in launches than it saves in arithmetic: at
/// 64 MiB in fp32 a pass over them takes some 20 µs on an H200, as long as the launch of its products.
const WORTH_A_LAUNCH: usize = 16 << 20;

/// Queries of a block: few enough that its scores fit [`BLOCK_BYTES`], and at most a quarter of a long
/// sequence, since a causal block needs no keys after its last query: with four blocks 5/8 of the
/// square is computed.
pub fn block(batch: usize, heads: usize, sequence: usize, keys: usize) -> usize {
    let row = (batch * heads * keys).max(1);
    let fitting = (BLOCK_BYTES / (4 * row)).max(1);
    let causal = sequence.div_ceil(4).max(WORTH_A_LAUNCH.div_ceil(row)).next_multiple_of(64);
    let size = causal.min(fitting);
    // A multiple that keeps rows aligned, where the block is long enough.
    if size > 64 { size / 64 * 64 } else { size }
}

/// The result, shaped as q. The first query's position is `past`.
pub fn attend(split: &Split, mask: &Mask, past: usize, arithmetic: Arithmetic) -> Tensor<3> {
    let mut o = split.q.empty_like();
    for block in split.blocks() {
        let keys = 0..past + block.end;
        let scores = split.scores(&block, &keys, arithmetic);
        let rows = split.rows(&block, past, mask);
        let p = masked_softmax(scores, &rows, split.scale(), arithmetic.dtype);
        let v = plain(split.v.clone()).rows(keys);
        o = product_into(o, split.query_rows(&block), false, plain(p), v, arithmetic.math);
    }
    o
}

/// From the gradient of the result: dq in the compute type, dk and dv in fp32, shaped as in `split`.
pub fn attend_backward(split: Split, g: Tensor<3>, mask: &Mask, arithmetic: Arithmetic) -> [Tensor<3>; 3] {
    let Arithmetic { dtype, math } = arithmetic;
    let mut dq = split.q.empty_like();
    let fp32 = || Tensor::<3>::empty(split.k.dims(), (&split.k.device(), DType::F32));
    let (mut dk, mut dv) = (fp32(), fp32());
    // The last block sees every key: it writes dk and dv, and the others add to them.
    for (i, block) in split.blocks().rev().enumerate() {
        let (keys, queries, add) = (0..block.end, split.query_rows(&block), i > 0);
        let scores = split.scores(&block, &keys, arithmetic);
        let g = || plain(g.clone()).rows(queries.clone());
        let dp = product(g(), transpose(split.v.clone()).rows(keys.clone()), DType::F32, math);
        let rows = split.rows(&block, 0, mask);
        let (p, ds) = masked_softmax_backward(scores, dp, &rows, split.scale(), dtype);
        dv = product_into(dv, keys.clone(), add, transpose(p), g(), math);
        let k = plain(split.k.clone()).rows(keys.clone());
        dq = product_into(dq, queries.clone(), false, plain(ds.clone()), k, math);
        let q = plain(split.q.clone()).rows(queries);
        dk = product_into(dk, keys, add, transpose(ds), q, math);
    }
    [dq, dk, dv]
}

/// Elements of the scores of the largest block, of one head of one sequence: those of its queries over the keys that
/// are not after its last one. That is the last of the whole blocks, or what is left after them.
pub fn largest_block(batch: usize, heads: usize, sequence: usize) -> usize {
    let size = block(batch, heads, sequence, sequence).min(sequence);
    let whole = sequence / size * size;
    (size * whole).max((sequence - whole) * sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 heads of 16 sequences of 1000 tokens: 128 000 scores in fp32 a query, of which 192 MiB hold 393, and a
    /// quarter of the sequence is 250; 256 of them are a block, whose last whole one ends at 768.
    #[test]
    fn the_largest_block_sees_the_most_keys() {
        assert_eq!(block(16, 8, 1000, 1000), 256);
        assert_eq!(largest_block(16, 8, 1000), (1000 - 768) * 1000);
        assert_eq!(largest_block(16, 8, 800), 256 * 768);
        // Short sequences are one block.
        assert_eq!(largest_block(2, 2, 100), 100 * 100);
    }
}
