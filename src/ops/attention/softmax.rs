//! The softmax of a block of scores over the keys each query sees, and its backward.

use burn::tensor::{Bool, DType, Int, Tensor, activation};

use super::Mask;
use crate::ops::attention::softmax_cuda as kernels;
use crate::ops::backend::{cube, cube_int, on_cuda, uncube};
use crate::ops::narrow;

/// Which queries the rows of a block are.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Position of the first row's query in its sequence.
    pub first: usize,
    /// Rows a position has.
    pub group: usize,
    /// Matrices a sequence has.
    pub kv_heads: usize,
    pub mask: &'a Mask,
}

impl Rows<'_> {
    /// [1 or batch · kv_heads, rows, keys]: whether a key is hidden from a row's query.
    pub fn hidden(&self, [_, rows, keys]: [usize; 3], like: &Tensor<3>) -> Tensor<3, Bool> {
        let device = like.device();
        let positions = rows / self.group;
        let (first, last) = (self.first as i64, (self.first + positions) as i64);
        let query: Tensor<2, Int> = Tensor::<1, Int>::arange(first..last, &device)
            .reshape([positions, 1])
            .repeat_dim(1, self.group)
            .reshape([rows, 1]);
        let key: Tensor<2, Int> = Tensor::<1, Int>::arange(0..keys as i64, &device).reshape([1, keys]);
        let later = key.expand([rows, keys]).greater(query.expand([rows, keys])).unsqueeze::<3>();
        let Some(segments) = &self.mask.starts else { return later };
        let [batch, _] = segments.dims();
        let of_keys = segments.clone().narrow(1, 0, keys).reshape([batch, 1, 1, keys]);
        let of_queries = segments
            .clone()
            .narrow(1, self.first, positions)
            .reshape([batch, 1, positions, 1])
            .repeat_dim(3, self.group)
            .reshape([batch, 1, rows, 1]);
        let shape = [batch, self.kv_heads, rows, keys];
        let foreign = of_keys.expand(shape).not_equal(of_queries.expand(shape));
        let foreign: Tensor<3, Bool> = foreign.reshape([batch * self.kv_heads, rows, keys]);
        later.expand([batch * self.kv_heads, rows, keys]).bool_or(foreign)
    }
}

impl From<&Rows<'_>> for kernels::Mask {
    fn from(rows: &Rows) -> Self {
        let segments = rows.mask.starts.as_ref().map(cube_int);
        Self { query_start: rows.first, group: rows.group, kv_heads: rows.kv_heads, segments }
    }
}

/// softmax(scale · scores) over the keys each query sees, 0 elsewhere, as `dtype`. Scores are
/// [batch · kv_heads, rows, keys] in fp32.
pub fn masked_softmax(scores: Tensor<3>, rows: &Rows, scale: f64, dtype: DType) -> Tensor<3> {
    if on_cuda(&scores) {
        return uncube(kernels::masked_softmax(cube(scores), &rows.into(), scale as f32, dtype));
    }
    narrow(probabilities(scores, rows, scale), dtype)
}

/// P and dS = scale · P ⊙ (dP − rowsum(P ⊙ dP)), as `dtype`.
pub fn masked_softmax_backward(
    scores: Tensor<3>,
    dp: Tensor<3>,
    rows: &Rows,
    scale: f64,
    dtype: DType,
) -> (Tensor<3>, Tensor<3>) {
    if on_cuda(&scores) {
        let (scores, dp) = (cube(scores), cube(dp));
        let (p, ds) = kernels::masked_softmax_backward(scores, dp, &rows.into(), scale as f32, dtype);
        return (uncube(p), uncube(ds));
    }
    let p = probabilities(scores, rows, scale);
    let sum = (p.clone() * dp.clone()).sum_dim(2);
    let ds = p.clone() * (dp - sum) * scale;
    (narrow(p, dtype), narrow(ds, dtype))
}

fn probabilities(scores: Tensor<3>, rows: &Rows, scale: f64) -> Tensor<3> {
    let hidden = rows.hidden(scores.dims(), &scores).expand(scores.dims());
    activation::softmax((scores * scale).mask_fill(hidden, f32::NEG_INFINITY), 2)
}
