//! Attention and its backward, block of queries by block of queries.

use std::ops::Range;

use burn::tensor::{DType, Tensor};

use super::softmax::{Rows, masked_softmax, masked_softmax_backward};
use super::{Heads, Mask};
use crate::ops::backend::on_cuda;
use crate::ops::dense::Arithmetic;
use crate::ops::narrow;
use crate::ops::product::{plain, product, product_into, transpose};

/// Bytes of one block's fp32 scores.
const BLOCK_BYTES: usize = 192 << 20;

/// q [batch · kv_heads, queries · group, head_dim], k and v [batch · kv_heads, keys, head_dim], in the
/// compute type.
pub struct Split {
    pub q: Tensor<3>,
    pub k: Tensor<3>,
    pub v: Tensor<3>,
    /// Of the queries.
    pub heads: Heads,
    /// Queries of a block; `None`: as many as [`block`] says.
    pub block: Option<usize>,
}

impl Split {
    /// From tensors with a token a row and the column each begins at.
    pub fn new(parts: [(Tensor<2>, usize); 3], heads: Heads, arithmetic: Arithmetic) -> Self {
        let [q, k, v] = parts;
        let keys = heads.of_keys();
        let part =
            |heads: &Heads, (x, offset): (Tensor<2>, usize)| heads.split(narrow(x, arithmetic.dtype), offset);
        Self { q: part(&heads, q), k: part(&keys, k), v: part(&keys, v), heads, block: None }
    }

    /// The queries' blocks, in rows of the sequence.
    fn blocks(&self, mask: &Mask) -> Vec<Range<usize>> {
        let (sequence, keys) = (self.heads.sequence, self.k.dims()[1]);
        let heads = self.heads.kv_heads * self.heads.group;
        let size = self.block.unwrap_or_else(|| match mask.longest() {
            None => block(self.heads.batch, heads, sequence, keys),
            Some(longest) => packed_block(heads, longest, on_cuda(&self.q)),
        });
        (0..sequence).step_by(size).map(|first| first..sequence.min(first + size)).collect()
    }

    /// Rows of q of a block of positions.
    fn query_rows(&self, block: &Range<usize>) -> Range<usize> {
        block.start * self.heads.group..block.end * self.heads.group
    }

    /// The keys that a block's queries may see.
    fn keys(&self, block: &Range<usize>, past: usize, mask: &Mask) -> Range<usize> {
        let start = mask.starts.as_ref().map_or(0, |starts| starts[past + block.start] as usize);
        // Few different widths; from 512 bytes on, CubeCL's alignment, the rest of the segments is no copy.
        start / 128 * 128..past + block.end
    }

    fn rows<'a>(&self, block: &Range<usize>, keys: &Range<usize>, past: usize, mask: &'a Mask) -> Rows<'a> {
        Rows {
            first: past + block.start,
            first_key: keys.start,
            group: self.heads.group,
            kv_heads: self.heads.kv_heads,
            mask,
        }
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
    // Aligned rows where there is a choice.
    if size > 64 { size / 64 * 64 } else { size }
}

/// Queries of a block of a packed sequence whose samples have up to `longest` tokens. Its scores are with
/// as many keys more than it has queries: small blocks compute least, where launches cost nothing.
pub fn packed_block(heads: usize, longest: usize, device_launches: bool) -> usize {
    let longest = longest as f64;
    // s (s + longest) heads = elements
    let size = |elements: usize| {
        let size = ((longest * longest + 4.0 * elements as f64 / heads as f64).sqrt() - longest) / 2.0;
        size as usize
    };
    let worth = if device_launches { size(WORTH_A_LAUNCH).next_multiple_of(64) } else { 64 };
    worth.min(size(BLOCK_BYTES / 4) / 64 * 64).max(64)
}

/// The result with a token a row, in the compute type. The first query's position is `past`.
pub fn attend(split: &Split, mask: &Mask, past: usize, arithmetic: Arithmetic) -> Tensor<2> {
    let mut o = split.q.empty_like();
    for block in split.blocks(mask) {
        let keys = split.keys(&block, past, mask);
        let scores = split.scores(&block, &keys, arithmetic);
        let rows = split.rows(&block, &keys, past, mask);
        let p = masked_softmax(scores, &rows, split.scale(), arithmetic.dtype);
        let v = plain(split.v.clone()).rows(keys);
        o = product_into(o, split.query_rows(&block), false, plain(p), v, arithmetic.math);
    }
    split.heads.merge(o, arithmetic.dtype)
}

/// dq in the compute type, dk and dv in fp32, shaped as in `split`.
pub fn attend_backward(split: Split, g: Tensor<2>, mask: &Mask, arithmetic: Arithmetic) -> [Tensor<3>; 3] {
    let Arithmetic { dtype, math } = arithmetic;
    let g = split.heads.split(narrow(g, dtype), 0);
    let mut dq = split.q.empty_like();
    let blocks = split.blocks(mask);
    // The last block may see every key: then it writes dk and dv, and the others add to them.
    let all = blocks.last().is_some_and(|last| split.keys(last, 0, mask).start == 0);
    let fp32 = || {
        let options = (&split.k.device(), DType::F32);
        if all { Tensor::<3>::empty(split.k.dims(), options) } else { Tensor::zeros(split.k.dims(), options) }
    };
    let (mut dk, mut dv) = (fp32(), fp32());
    for (i, block) in blocks.into_iter().rev().enumerate() {
        let (keys, queries, add) = (split.keys(&block, 0, mask), split.query_rows(&block), i > 0 || !all);
        let scores = split.scores(&block, &keys, arithmetic);
        let g = || plain(g.clone()).rows(queries.clone());
        let dp = product(g(), transpose(split.v.clone()).rows(keys.clone()), DType::F32, math);
        let rows = split.rows(&block, &keys, 0, mask);
        let (p, ds) = masked_softmax_backward(scores, dp, &rows, split.scale(), dtype);
        dv = product_into(dv, keys.clone(), add, transpose(p), g(), math);
        let k = plain(split.k.clone()).rows(keys.clone());
        dq = product_into(dq, queries.clone(), false, plain(ds.clone()), k, math);
        let q = plain(split.q.clone()).rows(queries);
        dk = product_into(dk, keys, add, transpose(ds), q, math);
    }
    [dq, dk, dv]
}
