//! Attention of queries over keys of any sequence, with a learned bias of the scores (Raffel et al. 2020, "T5"): of an
//! encoder over itself, of a decoder over itself and over an encoder.
//!
//! ```text
//! S = scale QKᵀ + B    P = softmax(S)    O = PV
//! dB = Σ over the batch of dS            dS = P ⊙ (dP − rowsum(P ⊙ dP))
//! ```

use std::ops::Range;

use burn::tensor::{Bool, DType, Int, Tensor, activation};

use super::blocks::block;
use super::{Heads, Way};
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
        let Heads { kv_heads, group, sequence, .. } = self.heads;
        let shape = [kv_heads, sequence * group, self.keys];
        bias.reshape([kv_heads, group, sequence, self.keys]).swap_dims(1, 2).reshape(shape)
    }

    /// The inverse of [`split_bias`](Self::split_bias).
    fn merge_bias(&self, bias: Tensor<3>) -> Tensor<3> {
        let Heads { kv_heads, group, sequence, .. } = self.heads;
        let shape = [kv_heads * group, sequence, self.keys];
        bias.reshape([kv_heads, sequence, group, self.keys]).swap_dims(1, 2).reshape(shape)
    }

    /// P in fp32 of rows of queries from QKᵀ [batch · kv_heads, rows, keys] in fp32 and the rows of the split bias.
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
            scores = scores + wide(bias).reshape([1, kv_heads, rows, keys]);
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

/// q [batch · queries, heads · head_dim], k and v [batch · keys, kv_heads · head_dim], and a bias of the scores [heads,
/// queries, keys] → the heads' results side by side, in q's shape. Kept for backward: the inputs; backward computes the
/// scores of a block of queries again.
pub fn cross_attention(
    qkv: [Tensor<2>; 3],
    bias: Option<Tensor<3>>,
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
        Some(bias) => custom(OperatorName::Attention, [q, k, v, bias.into_dispatch()], |[q, k, v, bias]| {
            let qkv = [q, k, v].map(Tensor::from_dispatch);
            let blocks = Blocks::new(qkv, Some(Tensor::from_dispatch(bias)), cross, arithmetic);
            (blocks.attend(), move |g, _| {
                let ([dq, dk, dv], db) = blocks.backward(g);
                let db = db.map(Tensor::into_dispatch);
                let [dq, dk, dv] = [dq, dk, dv].map(|gradient| Some(gradient.into_dispatch()));
                [dq, dk, dv, db]
            })
        }),
    }
}

/// The same by Burn's operators, differentiated by Burn.
fn composed(
    qkv: [Tensor<2>; 3],
    bias: Option<Tensor<3>>,
    cross: &CrossHeads,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let Arithmetic { dtype, math } = arithmetic;
    let (heads, keys) = (cross.heads, cross.of_keys());
    let [q, k, v] = qkv.map(|x| narrow(x, dtype));
    let (q, k, v) = (heads.split_composed(q, 0), keys.split_composed(k, 0), keys.split_composed(v, 0));
    let products = wide(composed_product(OperatorName::Attention, q, k.swap_dims(1, 2), math));
    let bias = bias.map(|bias| cross.split_bias(bias));
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
    /// Split as the rows of q.
    bias: Option<Tensor<3>>,
    cross: CrossHeads,
    arithmetic: Arithmetic,
    /// Types of q, k, v and the bias.
    dtypes: [DType; 4],
}

impl Blocks {
    fn new(qkv: [Tensor<2>; 3], bias: Option<Tensor<3>>, cross: CrossHeads, arithmetic: Arithmetic) -> Self {
        let [of_q, of_k, of_v] = qkv.each_ref().map(Tensor::dtype);
        let of_bias = bias.as_ref().map_or(DType::F32, Tensor::dtype);
        let (heads, keys) = (cross.heads, cross.of_keys());
        let [q, k, v] = qkv.map(|x| narrow(x, arithmetic.dtype));
        let bias = bias.map(|bias| cross.split_bias(bias));
        let (q, k, v) = (heads.split(q, 0, None), keys.split(k, 0, None), keys.split(v, 0, None));
        Self { q, k, v, bias, cross, arithmetic, dtypes: [of_q, of_k, of_v, of_bias] }
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Heads { batch, sequence, kv_heads, group, .. } = self.cross.heads;
        let size = block(batch, kv_heads * group, sequence, self.cross.keys, None);
        (0..sequence.div_ceil(size)).map(move |i| i * size..sequence.min((i + 1) * size))
    }

    /// P of a block of queries in fp32.
    fn probabilities(&self, queries: &Range<usize>) -> Tensor<3> {
        let rows = self.cross.rows(queries);
        let q = plain(self.q.clone()).rows(rows.clone());
        let products = product(q, transpose(self.k.clone()), DType::F32, self.arithmetic.math);
        let bias = self.bias.clone().map(|bias| bias.narrow(1, rows.start, rows.len()));
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

    /// From the gradient of the result to those of q, k and v, and of the bias.
    fn backward(self, g: Tensor<2>) -> ([Tensor<2>; 3], Option<Tensor<3>>) {
        let Arithmetic { dtype, math } = self.arithmetic;
        let Heads { batch, kv_heads, .. } = self.cross.heads;
        let g = self.cross.heads.split(narrow(g, dtype), 0, None);
        let mut dq = self.q.empty_like();
        let fp32 = || Tensor::<3>::zeros(self.k.dims(), (&self.k.device(), DType::F32));
        let (mut dk, mut dv, mut of_bias) = (fp32(), fp32(), Vec::new());
        let all = 0..self.cross.keys;
        for queries in self.blocks() {
            let rows = self.cross.rows(&queries);
            let p = self.probabilities(&queries);
            let g = || plain(g.clone()).rows(rows.clone());
            let dp = product(g(), transpose(self.v.clone()), DType::F32, math);
            let sum = (p.clone() * dp.clone()).sum_dim(2);
            let ds = p.clone() * (dp - sum);
            if self.bias.is_some() {
                let by_sequence = ds.clone().reshape([batch, kv_heads, rows.len(), self.cross.keys]);
                of_bias.push(by_sequence.sum_dim(0).reshape([kv_heads, rows.len(), self.cross.keys]));
            }
            let (p, dz) = (narrow(p, dtype), narrow(ds * self.cross.heads.scale(), dtype));
            dv = product_into(dv, all.clone(), true, transpose(p), g(), math);
            dq = product_into(dq, rows.clone(), false, plain(dz.clone()), plain(self.k.clone()), math);
            dk = product_into(dk, all.clone(), true, transpose(dz), plain(self.q.clone()).rows(rows), math);
        }
        let [of_q, of_k, of_v, type_of_bias] = self.dtypes;
        let (heads, keys) = (self.cross.heads, self.cross.of_keys());
        let gradients = [heads.merge(dq, of_q), keys.merge(dk, of_k), keys.merge(dv, of_v)];
        let of_bias = (!of_bias.is_empty())
            .then(|| narrow(self.cross.merge_bias(Tensor::cat(of_bias, 1)), type_of_bias));
        (gradients, of_bias)
    }
}

#[cfg(test)]
#[path = "cross_tests.rs"]
mod tests;
