//! Attention of queries over keys of any sequence, with a learned bias of the scores (Raffel et al. 2020, "T5"): of an
//! encoder over itself, of a decoder over itself and over an encoder.
//!
//! ```text
//! S = scale QKᵀ + B    P = softmax(S)    O = PV
//! dB = Σ over the batch of dS            dS = P ⊙ (dP − rowsum(P ⊙ dP))
//! ```
//!
//! B is a [`RelativeBias`], of which a block of queries has its own rows: nothing of the scores' shape is kept.

use std::ops::Range;

use burn::tensor::{Bool, DType, Int, Tensor, activation};

use super::blocks::block;
use super::relative::RelativeBias;
use super::{Heads, Way};
use crate::device;
use crate::ops::dense::Arithmetic;
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::ops::product::{composed_product, plain, product, product_into, transpose};
use crate::ops::{narrow, wide};

/// Heads of queries and the keys that they see. The scores have no window and no soft cap.
#[derive(Clone, Debug)]
pub struct CrossHeads {
    /// Those of the queries.
    pub heads: Heads,
    /// Keys of each sequence.
    pub keys: usize,
    /// Whether a query does not see the keys after it; the last query stands at the last key.
    pub causal: bool,
    /// [batch, keys]: whether a key is padding, which no query sees. Each query must see a key.
    pub padding: Option<Tensor<2, Bool>>,
}

impl CrossHeads {
    /// Those of keys and values.
    fn of_keys(&self) -> Heads {
        Heads { sequence: self.keys, ..self.heads.of_keys() }
    }

    /// Rows of queries of these positions, as [`Heads::split`] orders them.
    fn rows(&self, queries: &Range<usize>) -> Range<usize> {
        queries.start * self.heads.group..queries.end * self.heads.group
    }

    /// [heads, queries, keys] → [kv_heads, queries · group, keys].
    fn split_bias(&self, bias: Tensor<3>) -> Tensor<3> {
        let (Heads { kv_heads, group, .. }, [_, queries, keys]) = (self.heads, bias.dims());
        let by_group = bias.reshape([kv_heads, group, queries, keys]).swap_dims(1, 2);
        by_group.reshape([kv_heads, queries * group, keys])
    }

    /// The inverse of [`split_bias`](Self::split_bias).
    fn merge_bias(&self, bias: Tensor<3>) -> Tensor<3> {
        let (Heads { kv_heads, group, .. }, [_, rows, keys]) = (self.heads, bias.dims());
        let by_group = bias.reshape([kv_heads, rows / group, group, keys]).swap_dims(1, 2);
        by_group.reshape([kv_heads * group, rows / group, keys])
    }

    /// P in fp32 of rows of queries from QKᵀ [batch · kv_heads, rows, keys] in fp32 and the rows of the split bias in fp32.
    fn probabilities(
        &self,
        products: Tensor<3>,
        bias: Option<Tensor<3>>,
        queries: &Range<usize>,
    ) -> Tensor<3> {
        let Heads { batch, kv_heads, .. } = self.heads;
        let [matrices, rows, keys] = products.dims();
        let shape = [batch, kv_heads, rows, keys];
        let mut scores = (products * self.heads.scale()).reshape(shape);
        if let Some(bias) = bias {
            scores = scores + bias.reshape([1, kv_heads, rows, keys]);
        }
        if let Some(hidden) = self.hidden(queries, &scores) {
            scores = scores.mask_fill(hidden.expand(shape), f32::NEG_INFINITY);
        }
        activation::softmax(scores, 3).reshape([matrices, rows, keys])
    }

    /// [1 or batch, 1, 1 or rows, keys]; `None`: every query sees every key.
    fn hidden(&self, queries: &Range<usize>, like: &Tensor<4>) -> Option<Tensor<4, Bool>> {
        let Heads { batch, sequence, group, .. } = self.heads;
        let (rows, keys, device) = (self.rows(queries).len(), self.keys, like.device());
        let later = self.causal.then(|| {
            let past = self.keys as i64 - sequence as i64;
            let positions = past + queries.start as i64..past + queries.end as i64;
            let query: Tensor<2, Int> =
                Tensor::<1, Int>::arange(positions, &device).reshape([queries.len(), 1]).repeat_dim(1, group);
            let query = query.reshape([rows, 1]).expand([rows, keys]);
            let key: Tensor<2, Int> = Tensor::<1, Int>::arange(0..keys as i64, &device).reshape([1, keys]);
            key.expand([rows, keys]).greater(query).reshape([1, 1, rows, keys])
        });
        let padding = self.padding.clone().map(|padding| padding.reshape([batch, 1, 1, keys]));
        match (later, padding) {
            (Some(later), Some(padding)) => {
                let shape = [batch, 1, rows, keys];
                Some(later.expand(shape).bool_or(padding.expand(shape)))
            }
            (later, padding) => later.or(padding),
        }
    }
}

/// q [batch · queries, heads · head_dim], k and v [batch · keys, kv_heads · head_dim], and a bias of the scores → the heads'
/// results side by side, in q's shape. Kept for backward: the inputs; backward computes the scores of a block of queries
/// again.
pub fn cross_attention(
    qkv: [Tensor<2>; 3],
    bias: Option<RelativeBias>,
    cross: &CrossHeads,
    arithmetic: Arithmetic,
    way: Way,
) -> Tensor<2> {
    let scores = cross.heads.scores;
    assert!(
        scores.window.is_none() && scores.soft_cap.is_none(),
        "attention: a window or soft cap with a bias"
    );
    let arithmetic = arithmetic.in_region();
    if way == Way::Plain {
        return composed(qkv, bias, cross, arithmetic);
    }
    let cross = cross.clone();
    let [q, k, v] = qkv.map(Tensor::into_dispatch);
    match bias {
        None => custom(OperatorName::Attention, [q, k, v], |inputs| {
            let blocks = Blocks::new(inputs.map(Tensor::from_dispatch), None, cross, arithmetic);
            (blocks.attend(), move |g, _| {
                let ([dq, dk, dv], _) = blocks.backward(g);
                [dq, dk, dv].map(|gradient| Some(gradient.into_dispatch()))
            })
        }),
        Some(RelativeBias { table, buckets }) => {
            custom(OperatorName::Attention, [q, k, v, table.into_dispatch()], |[q, k, v, table]| {
                let qkv = [q, k, v].map(Tensor::from_dispatch);
                let bias = RelativeBias { table: Tensor::from_dispatch(table), buckets };
                let blocks = Blocks::new(qkv, Some(bias), cross, arithmetic);
                (blocks.attend(), move |g, _| {
                    let ([dq, dk, dv], of_table) = blocks.backward(g);
                    let of_table = of_table.map(Tensor::into_dispatch);
                    let [dq, dk, dv] = [dq, dk, dv].map(|gradient| Some(gradient.into_dispatch()));
                    [dq, dk, dv, of_table]
                })
            })
        }
    }
}

/// The same by Burn's operators, differentiated by Burn.
fn composed(
    qkv: [Tensor<2>; 3],
    bias: Option<RelativeBias>,
    cross: &CrossHeads,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let Arithmetic { dtype, math } = arithmetic;
    let (heads, keys) = (cross.heads, cross.of_keys());
    let [q, k, v] = qkv.map(|x| narrow(x, dtype));
    let (q, k, v) = (heads.split_composed(q, 0), keys.split_composed(k, 0), keys.split_composed(v, 0));
    let products = wide(composed_product(OperatorName::Attention, q, k.swap_dims(1, 2), math));
    let bias = bias.map(|bias| cross.split_bias(bias.of_queries(0, heads.sequence)));
    let p = cross.probabilities(products, bias, &(0..heads.sequence));
    let o = composed_product(OperatorName::Attention, narrow(p, dtype), v, math);
    heads.merge_composed(o, dtype)
}

/// What is kept for backward, outside of the graph.
struct Blocks {
    /// Split into heads, in the compute type.
    q: Tensor<3>,
    k: Tensor<3>,
    v: Tensor<3>,
    bias: Option<RelativeBias>,
    cross: CrossHeads,
    arithmetic: Arithmetic,
    /// Types of q, k and v.
    dtypes: [DType; 3],
}

impl Blocks {
    fn new(
        qkv: [Tensor<2>; 3],
        bias: Option<RelativeBias>,
        cross: CrossHeads,
        arithmetic: Arithmetic,
    ) -> Self {
        let dtypes = qkv.each_ref().map(Tensor::dtype);
        let (heads, keys) = (cross.heads, cross.of_keys());
        let [q, k, v] = qkv.map(|x| narrow(x, arithmetic.dtype));
        let (q, k, v) = (heads.split(q, 0, None), keys.split(k, 0, None), keys.split(v, 0, None));
        Self { q, k, v, bias, cross, arithmetic, dtypes }
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Heads { batch, sequence, kv_heads, group, .. } = self.cross.heads;
        let size = block(batch, kv_heads * group, sequence, self.cross.keys, None);
        (0..sequence.div_ceil(size)).map(move |i| i * size..sequence.min((i + 1) * size))
    }

    /// P of a block of queries in fp32.
    fn probabilities(&self, queries: &Range<usize>) -> Tensor<3> {
        let rows = self.cross.rows(queries);
        let q = plain(self.q.clone()).rows(rows);
        let products = product(q, transpose(self.k.clone()), DType::F32, self.arithmetic.math);
        let own = |bias: &RelativeBias| bias.of_queries(queries.start, queries.len());
        let bias = self.bias.as_ref().map(|bias| self.cross.split_bias(own(bias)));
        self.cross.probabilities(products, bias, queries)
    }

    fn attend(&self) -> Tensor<2> {
        let Arithmetic { dtype, math } = self.arithmetic;
        let mut o = self.q.empty_like();
        for queries in self.blocks() {
            let p = narrow(self.probabilities(&queries), dtype);
            o = product_into(o, self.cross.rows(&queries), false, plain(p), plain(self.v.clone()), math);
        }
        self.cross.heads.merge(o, dtype)
    }

    /// From the gradient of the result to those of q, k and v, and of the bias's table.
    fn backward(self, g: Tensor<2>) -> ([Tensor<2>; 3], Option<Tensor<2>>) {
        let Arithmetic { dtype, math } = self.arithmetic;
        let Heads { batch, kv_heads, .. } = self.cross.heads;
        let g = self.cross.heads.split(narrow(g, dtype), 0, None);
        let mut dq = self.q.empty_like();
        let fp32 = || device::zeros(self.k.dims(), (&self.k.device(), DType::F32));
        let (mut dk, mut dv, mut of_table) = (fp32(), fp32(), None);
        let all = 0..self.cross.keys;
        for queries in self.blocks() {
            let rows = self.cross.rows(&queries);
            let p = self.probabilities(&queries);
            let g = || plain(g.clone()).rows(rows.clone());
            let dp = product(g(), transpose(self.v.clone()), DType::F32, math);
            let sum = (p.clone() * dp.clone()).sum_dim(2);
            let ds = p.clone() * (dp - sum);
            if let Some(bias) = &self.bias {
                let by_sequence = ds.clone().reshape([batch, kv_heads, rows.len(), self.cross.keys]);
                let sum = by_sequence.sum_dim(0).reshape([kv_heads, rows.len(), self.cross.keys]);
                let part = bias.gradient(self.cross.merge_bias(sum), queries.start, math);
                of_table = Some(of_table.map_or(part.clone(), |earlier: Tensor<2>| earlier + part));
            }
            let (p, dz) = (narrow(p, dtype), narrow(ds * self.cross.heads.scale(), dtype));
            dv = product_into(dv, all.clone(), true, transpose(p), g(), math);
            dq = product_into(dq, rows.clone(), false, plain(dz.clone()), plain(self.k.clone()), math);
            dk = product_into(dk, all.clone(), true, transpose(dz), plain(self.q.clone()).rows(rows), math);
        }
        let [of_q, of_k, of_v] = self.dtypes;
        let (heads, keys) = (self.cross.heads, self.cross.of_keys());
        let gradients = [heads.merge(dq, of_q), keys.merge(dk, of_k), keys.merge(dv, of_v)];
        let of_table = of_table.zip(self.bias).map(|(sum, bias)| narrow(sum, bias.table.dtype()));
        (gradients, of_table)
    }
}

#[cfg(test)]
#[path = "cross_tests.rs"]
mod tests;
