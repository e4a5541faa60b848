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
//! Where the device has fused kernels for the type and the head size, one launch does all of it on chip (Dao 2023,
//! FlashAttention-2) and nothing of Z's shape is in memory. Kept for backward: Q, K, V, O and the logarithm of each
//! row's sum of exponentials.
//!
//! With a soft cap c the softmax is of c · tanh(Z / (c √d)), and dS has the factor 1 − tanh². A window hides the keys
//! before it, and no block has keys that none of its queries sees. [`Scores`] has these options.
//!
//! Elsewhere a block of queries is a few launches. Packed samples are attended as batches of their own, see
//! [`Packing`]. Kept for backward: Q, K and V. Backward computes Z and P of a block again; Z, P, dP and dS are
//! [batch · kv_heads, queries · group, keys] of one block, and dK and dV are summed in fp32.
//!
//! The products are in the type of the autocast region around the call, else in that of the arithmetic
//! given; softmax is in fp32.

mod blocks;
mod composed;
mod cost;
mod cpu;
pub mod cross;
pub mod cross_cost;
pub mod decode;
pub mod flash;
mod fused;
mod heads;
pub mod heads_cuda;
mod packing;
pub mod relative;
mod softmax;
pub mod softmax_cuda;
mod softmax_kernels;
mod softmax_rows;

use burn::tensor::{DType, Int, Tensor};

use super::backend::on_cuda;
use super::dense::Arithmetic;
use super::function::custom;
use super::name::OperatorName;
use super::{Operator, Ops, narrow, unwritten};
use crate::common::{Compute, DeviceId};
use crate::device::cuda::Gpu;
use crate::device::dtype;
use crate::ops::slices;
use blocks::{Split, attend, attend_backward};
pub use cost::{HeadSizes, cost};
pub use cpu_kernels::attention::Scores;
use fused::Fused;
pub use heads::Heads;
pub use packing::{Bucket, Buckets, Grain, Packing, Places};

/// Which keys a query sees: those that are not after it, lie in its segment, and within the window of [`Scores`].
#[derive(Clone, Debug, Default)]
pub struct Mask {
    /// [batch, sequence]: where each token's segment begins in its sequence; tokens see each other only within a
    /// segment. Padding is a segment of its own, and so is each packed sample; `None`: one segment.
    pub starts: Option<Tensor<2, Int>>,
    /// The samples of one packed sequence as batches of their own.
    pub packing: Option<Packing>,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By fused kernels where there are some, else as [`Blocks`](Self::Blocks).
    Fused,
    /// Block of queries by block of queries.
    Blocks,
    /// Composed of Burn's operators and differentiated by Burn.
    Plain,
}

impl From<&Ops> for Way {
    fn from(ops: &Ops) -> Self {
        match (ops.attention, ops.fused_attention) {
            (Operator::Plain, _) => Self::Plain,
            (Operator::Custom, true) => Self::Fused,
            (Operator::Custom, false) => Self::Blocks,
        }
    }
}

/// Which way attention with heads of `head_dim` takes on a device, and why, in words.
pub fn path(device: DeviceId, compute: Compute, ops: &Ops, head_dim: usize) -> String {
    let fused = match (Way::from(ops), device) {
        (Way::Plain, _) => return "composed of Burn's operators".into(),
        (Way::Blocks, DeviceId::Cuda(_)) => Err("ops.fused_attention = false".into()),
        (_, DeviceId::Cpu) => return "blocks of queries".into(),
        (Way::Fused, DeviceId::Cuda(ordinal)) => {
            flash::Kernels::of(Gpu::open(ordinal), dtype(compute), head_dim, Scores::default())
        }
    };
    match fused {
        Ok(kernels) => format!("fused, {}", kernels.instruction()),
        Err(reason) => format!("blocks of queries ({reason})"),
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
    way: Way,
) -> Tensor<2> {
    let arithmetic = arithmetic.in_region();
    match way {
        Way::Plain => composed::attention([q, k, v], heads, mask, arithmetic),
        way => with_backward([q, k, v], [(0, 0), (1, 0), (2, 0)], heads, mask, arithmetic, way),
    }
}

/// The same for q, k and v side by side in one tensor [batch · sequence, (heads + 2 kv_heads) · head_dim].
pub fn attention_packed(
    qkv: Tensor<2>,
    heads: Heads,
    mask: &Mask,
    arithmetic: Arithmetic,
    way: Way,
) -> Tensor<2> {
    let arithmetic = arithmetic.in_region();
    let (queries, keys) = (heads.columns(), heads.of_keys().columns());
    if way == Way::Plain {
        let part = |start, length| qkv.clone().narrow(1, start, length);
        let qkv = [part(0, queries), part(queries, keys), part(queries + keys, keys)];
        return composed::attention(qkv, heads, mask, arithmetic);
    }
    with_backward([qkv], [(0, 0), (0, queries), (0, queries + keys)], heads, mask, arithmetic, way)
}

/// Where q, k and v are: in which tensor, and from which column on.
pub type Columns = [(usize, usize); 3];

fn with_backward<const N: usize>(
    inputs: [Tensor<2>; N],
    columns: Columns,
    heads: Heads,
    mask: &Mask,
    arithmetic: Arithmetic,
    way: Way,
) -> Tensor<2> {
    if arithmetic.dtype == DType::F32 && inputs.iter().all(slices::takes) {
        return cpu::attention(inputs, columns, heads, mask);
    }
    let call = Call { columns, heads, mask: mask.clone(), arithmetic };
    custom(OperatorName::Attention, inputs.map(Tensor::into_dispatch), |inputs| {
        let inputs = inputs.map(Tensor::<2>::from_dispatch);
        let like = inputs.each_ref().map(|x| (x.dims(), x.dtype()));
        let (kept, o) = call.attend(inputs.map(|x| narrow(x, arithmetic.dtype)), way);
        (o, move |g: Tensor<2>, _| {
            let gradients = call.backward(kept, narrow(g, arithmetic.dtype), like);
            gradients.map(|gradient| gradient.map(Tensor::into_dispatch))
        })
    })
}

/// What is kept for backward.
enum Kept {
    Fused(Box<Fused>),
    Whole(Box<Split>),
    /// The inputs in the compute type; a bucket's part of them is split again.
    Packed(Vec<Tensor<2>>, Box<Packing>),
}

/// What is attended, and how.
struct Call {
    columns: Columns,
    heads: Heads,
    mask: Mask,
    arithmetic: Arithmetic,
}

impl Call {
    /// What backward needs, and the result, from inputs in the compute type.
    fn attend<const N: usize>(&self, inputs: [Tensor<2>; N], way: Way) -> (Kept, Tensor<2>) {
        let Self { columns, heads, ref mask, arithmetic } = *self;
        let kernels = if way == Way::Fused { fused::kernels(&inputs[0], heads) } else { None };
        match (kernels, mask.packing.clone()) {
            (Some(kernels), _) => {
                let (fused, o) = Fused::attend(kernels, &inputs, columns, heads, mask);
                (Kept::Fused(Box::new(fused)), o)
            }
            (None, None) => {
                let split = Split::new(&inputs, columns, heads, None);
                drop(inputs);
                let o = heads.merge(attend(&split, mask, arithmetic), arithmetic.dtype);
                (Kept::Whole(Box::new(split)), o)
            }
            (None, Some(packing)) => {
                let rows = [inputs[0].dims()[0], heads.columns()];
                let mut o = unwritten(rows, arithmetic.dtype, &inputs[0]);
                for (heads, places) in packing.parts(heads) {
                    let split = Split::new(&inputs, columns, heads, Some(&places));
                    let part = attend(&split, &Mask::default(), arithmetic);
                    o = heads.merge_into(part, Some(&places), o, 0);
                }
                (Kept::Packed(inputs.into(), Box::new(packing)), o)
            }
        }
    }

    /// The gradients of the inputs, of their shapes and types, from that of the result in the compute type.
    fn backward<const N: usize>(
        &self,
        kept: Kept,
        g: Tensor<2>,
        like: [([usize; 2], DType); N],
    ) -> [Option<Tensor<2>>; N] {
        let Self { columns, heads, ref mask, arithmetic } = *self;
        let mut gradients = [const { None }; N];
        let mut merge = |heads: Heads, parts: [Tensor<3>; 3], places: Option<&Places>| {
            let of = [heads, heads.of_keys(), heads.of_keys()];
            for ((part, heads), (tensor, column)) in parts.into_iter().zip(of).zip(columns) {
                let (dims, dtype) = like[tensor];
                let whole = gradients[tensor].take().unwrap_or_else(|| unwritten(dims, dtype, &part));
                gradients[tensor] = Some(heads.merge_into(part, places, whole, column));
            }
        };
        match kept {
            Kept::Fused(fused) => return fused.backward(g, like.map(|(_, dtype)| dtype)).map(Some),
            Kept::Whole(split) => {
                let g = heads.split(g, 0, None);
                merge(heads, attend_backward(*split, g, mask, arithmetic), None);
            }
            Kept::Packed(inputs, packing) => {
                for (heads, places) in packing.parts(heads) {
                    let split = Split::new(&inputs, columns, heads, Some(&places));
                    let g = heads.split(g.clone(), 0, Some(&places));
                    let parts = attend_backward(split, g, &Mask::default(), arithmetic);
                    merge(heads, parts, Some(&places));
                }
            }
        }
        gradients
    }
}

/// Attention of new tokens over the keys and values of all tokens so far, without backward: q [batch · new, heads ·
/// head_dim]; k and v [batch, capacity, kv_heads · head_dim] in the compute type, of which the first `keys` of each sequence
/// are there.
pub fn attend_cached(
    q: Tensor<2>,
    cached: [Tensor<3>; 2],
    heads: Heads,
    keys: usize,
    mask: &Mask,
    arithmetic: Arithmetic,
    way: Way,
) -> Tensor<2> {
    let arithmetic = arithmetic.in_region();
    let q = narrow(q, arithmetic.dtype);
    if way == Way::Fused
        && heads.sequence == 1
        && on_cuda(&q)
        && let Some(o) = fused::attend_next(&q, &cached, heads, keys, mask)
    {
        return o;
    }
    // Keys before the window of the first new token are not read.
    let first = heads.scores.first_key(keys - heads.sequence);
    let (keys, starts) =
        (keys - first, mask.starts.clone().map(|starts| starts.narrow(1, first, keys - first)));
    let mask = &Mask { starts, packing: None };
    let rows = |x: Tensor<3>| {
        let [batch, _, columns] = x.dims();
        x.narrow(1, first, keys).reshape([batch * keys, columns])
    };
    let [k, v] = cached.map(rows);
    if arithmetic.dtype == DType::F32 && [&q, &k, &v].into_iter().all(slices::takes) {
        return cpu::attend_cached([q, k, v].map(Tensor::inner), heads, keys, mask);
    }
    let all = Heads { sequence: keys, ..heads.of_keys() };
    let of = |heads: Heads, x: Tensor<2>| heads.split(x, 0, None);
    let split = Split { q: of(heads, q), k: of(all, k), v: of(all, v), heads, block: None };
    heads.merge(attend(&split, mask, arithmetic), arithmetic.dtype)
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod scores_tests;
#[cfg(test)]
mod tests;
