//! Causal self-attention with grouped queries (Ainslie et al. 2023) and hand-written backward that
//! never stores the S x S probabilities.
//!
//! For each block of queries, over the keys they may see:
//!
//! ```text
//! Z = QKᵀ        P = softmax(Z / √d)             O = PV
//! dV = Pᵀ dO     dP = dO Vᵀ     dS = P ⊙ (dP − rowsum(P ⊙ dP)) / √d     dQ = dS K     dK = dSᵀ Q
//! ```
//!
//! Of packed samples a block reads the keys from the beginning of its first query's sample on.
//!
//! The products are in the type of the autocast region around the call, else in that of the arithmetic
//! given; softmax is in fp32. Kept for backward: Q, K and V. Z and P of a block are made again in backward; Z, P, dP and dS are
//! [batch · kv_heads, queries · group, keys] of one block, and dK and dV are summed in fp32.

mod blocks;
mod composed;
mod heads;
mod softmax;

use std::sync::Arc;

use burn::tensor::{Int, Tensor};

use super::Operator;
use super::dense::Arithmetic;
use super::function::custom;
use blocks::{Split, attend, attend_backward};
pub use blocks::{block, packed_block};
pub use heads::Heads;

/// Which keys a query sees: those that are not after it and lie in its segment.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    /// [batch, sequence]: tokens see each other only within one number. Padding has a number of its
    /// own, and packed samples have one each; `None`: one segment.
    pub segments: Option<Tensor<2, Int>>,
    /// Of one packed sequence: where the segment of each token begins. Keys before it are not even
    /// multiplied.
    pub starts: Option<Arc<[u32]>>,
}

impl Mask {
    /// Tokens of the longest segment of a packed sequence.
    fn longest(&self) -> Option<usize> {
        let length = |(token, start): (usize, &u32)| token + 1 - *start as usize;
        self.starts.as_ref()?.iter().enumerate().map(length).max()
    }
}

/// q [batch · sequence, heads · head_dim], k and v [batch · sequence, kv_heads · head_dim] → the heads'
/// results side by side, in q's shape.
pub fn attention(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    heads: Heads,
    mask: &Mask,
    arithmetic: Arithmetic,
    operator: Operator,
) -> Tensor<2> {
    let arithmetic = arithmetic.in_region();
    if operator == Operator::Plain {
        return composed::attention(q, k, v, heads, mask, arithmetic);
    }
    let mask = mask.clone();
    custom([q.into_dispatch(), k.into_dispatch(), v.into_dispatch()], |inputs| {
        let [q, k, v] = inputs.map(Tensor::<2>::from_dispatch);
        let dtypes = [q.dtype(), k.dtype(), v.dtype()];
        let split = Split::new([(q, 0), (k, 0), (v, 0)], heads, arithmetic);
        let o = attend(&split, &mask, 0, arithmetic);
        (o, move |g: Tensor<2>, _| {
            let [dq, dk, dv] = attend_backward(split, g, &mask, arithmetic);
            let kv = heads.of_keys();
            [
                Some(heads.merge(dq, dtypes[0]).into_dispatch()),
                Some(kv.merge(dk, dtypes[1]).into_dispatch()),
                Some(kv.merge(dv, dtypes[2]).into_dispatch()),
            ]
        })
    })
}

/// The same for q, k and v side by side in one tensor [batch · sequence, (heads + 2 kv_heads) · head_dim].
pub fn attention_packed(
    qkv: Tensor<2>,
    heads: Heads,
    mask: &Mask,
    arithmetic: Arithmetic,
    operator: Operator,
) -> Tensor<2> {
    let arithmetic = arithmetic.in_region();
    let (queries, keys) = (heads.columns(), heads.of_keys().columns());
    if operator == Operator::Plain {
        let part = |start, length| qkv.clone().narrow(1, start, length);
        let (q, k, v) = (part(0, queries), part(queries, keys), part(queries + keys, keys));
        return composed::attention(q, k, v, heads, mask, arithmetic);
    }
    let mask = mask.clone();
    custom([qkv.into_dispatch()], |[qkv]| {
        let qkv = Tensor::<2>::from_dispatch(qkv);
        let dtype = qkv.dtype();
        let parts = [(qkv.clone(), 0), (qkv.clone(), queries), (qkv, queries + keys)];
        let split = Split::new(parts, heads, arithmetic);
        let o = attend(&split, &mask, 0, arithmetic);
        (o, move |g: Tensor<2>, _| {
            let [dq, dk, dv] = attend_backward(split, g, &mask, arithmetic);
            [Some(heads.merge_packed(dq, dk, dv, dtype).into_dispatch())]
        })
    })
}

/// Attention of `queries` new tokens a sequence over the keys and values of all tokens so far, without
/// backward: q [batch · queries, heads · head_dim], k and v [batch · keys, kv_heads · head_dim].
pub fn attend_cached(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    heads: Heads,
    keys: usize,
    mask: &Mask,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let arithmetic = arithmetic.in_region();
    let past = keys - heads.sequence;
    let all = Heads { sequence: keys, ..heads.of_keys() };
    let split = Split { q: heads.split(q, 0), k: all.split(k, 0), v: all.split(v, 0), heads, block: None };
    attend(&split, mask, past, arithmetic)
}

#[cfg(test)]
mod tests;
