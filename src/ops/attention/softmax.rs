//! The softmax of a block of scores over the keys each query sees, and its backward.

use burn::tensor::{Bool, DType, Int, Tensor, activation};

use super::{Heads, Mask};
use crate::ops::attention::softmax_cuda as kernels;
use crate::ops::backend::{cube, cube_int, on_cuda, uncube};
use crate::ops::narrow;

/// Which queries the rows of a block are.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Position of the first row's query in its sequence, and that of the first column's key.
    pub first: usize,
    pub first_key: usize,
    pub heads: Heads,
    pub mask: &'a Mask,
}

impl Rows<'_> {
    /// What softmax is taken of where keys are visible, from products of queries and keys.
    pub fn scores(&self, products: Tensor<3>) -> Tensor<3> {
        let z = products * self.heads.scale();
        match self.heads.scores.soft_cap {
            None => z,
            Some(cap) => (z / cap).tanh() * cap,
        }
    }

    /// [1 or batch · kv_heads, rows, keys]: whether a key is hidden from a row's query.
    pub fn hidden(&self, [_, rows, keys]: [usize; 3], like: &Tensor<3>) -> Tensor<3, Bool> {
        let device = like.device();
        let Heads { kv_heads, group, scores, .. } = self.heads;
        let positions = rows / group;
        let (first, last) = (self.first as i64, (self.first + positions) as i64);
        let query: Tensor<2, Int> = Tensor::<1, Int>::arange(first..last, &device)
            .reshape([positions, 1])
            .repeat_dim(1, group)
            .reshape([rows, 1])
            .expand([rows, keys]);
        let columns = self.first_key as i64..(self.first_key + keys) as i64;
        let key: Tensor<2, Int> =
            Tensor::<1, Int>::arange(columns, &device).reshape([1, keys]).expand([rows, keys]);
        let later = key.clone().greater(query.clone());
        let unseen = match scores.window {
            None => later,
            Some(window) => later.bool_or(key.lower_equal(query - window as i64)),
        };
        let unseen = unseen.unsqueeze::<3>();
        let Some(segments) = &self.mask.starts else { return unseen };
        let [batch, _] = segments.dims();
        let of_keys = segments.clone().narrow(1, self.first_key, keys).reshape([batch, 1, 1, keys]);
        let of_queries = segments
            .clone()
            .narrow(1, self.first, positions)
            .reshape([batch, 1, positions, 1])
            .repeat_dim(3, group)
            .reshape([batch, 1, rows, 1]);
        let shape = [batch, kv_heads, rows, keys];
        let foreign = of_keys.expand(shape).not_equal(of_queries.expand(shape));
        let foreign: Tensor<3, Bool> = foreign.reshape([batch * kv_heads, rows, keys]);
        unseen.expand([batch * kv_heads, rows, keys]).bool_or(foreign)
    }
}

impl From<&Rows<'_>> for kernels::Mask {
    fn from(rows: &Rows) -> Self {
        let segments = rows.mask.starts.as_ref().map(cube_int);
        let Heads { kv_heads, group, scores, .. } = rows.heads;
        Self {
            query_start: rows.first,
            key_start: rows.first_key,
            window: scores.window,
            group,
            kv_heads,
            segments,
        }
    }
}

impl From<&Rows<'_>> for kernels::Scaling {
    fn from(rows: &Rows) -> Self {
        let soft_cap = rows.heads.scores.soft_cap.map(|cap| cap as f32);
        Self { scale: rows.heads.scale() as f32, soft_cap }
    }
}

/// P: softmax of the [`scores`](Rows::scores) over the keys each query sees, 0 elsewhere, as `dtype`. Products of queries
/// and keys are [batch · kv_heads, rows, keys] in fp32.
pub fn masked_softmax(products: Tensor<3>, rows: &Rows, dtype: DType) -> Tensor<3> {
    if on_cuda(&products) {
        return uncube(kernels::masked_softmax(cube(products), &rows.into(), rows.into(), dtype));
    }
    narrow(probabilities(rows.scores(products), rows), dtype)
}

/// P and the gradient of the products, as `dtype`: scale · P ⊙ (dP − rowsum(P ⊙ dP)), and with a soft cap c of scores z
/// times 1 − (z / c)².
pub fn masked_softmax_backward(
    products: Tensor<3>,
    dp: Tensor<3>,
    rows: &Rows,
    dtype: DType,
) -> (Tensor<3>, Tensor<3>) {
    if on_cuda(&products) {
        let (products, dp) = (cube(products), cube(dp));
        let (p, ds) = kernels::masked_softmax_backward(products, dp, &rows.into(), rows.into(), dtype);
        return (uncube(p), uncube(ds));
    }
    let scores = rows.scores(products);
    let slope = rows.heads.scores.soft_cap.map(|cap| -(scores.clone() / cap).square() + 1.0);
    let p = probabilities(scores, rows);
    let sum = (p.clone() * dp.clone()).sum_dim(2);
    let ds = p.clone() * (dp - sum) * rows.heads.scale();
    let ds = match slope {
        None => ds,
        Some(slope) => ds * slope,
    };
    (narrow(p, dtype), narrow(ds, dtype))
}

fn probabilities(scores: Tensor<3>, rows: &Rows) -> Tensor<3> {
    let hidden = rows.hidden(scores.dims(), &scores).expand(scores.dims());
    activation::softmax(scores.mask_fill(hidden, f32::NEG_INFINITY), 2)
}
