//! Cross entropy over a vocabulary that is seen in chunks of columns, so that the logits of a
//! token never exist all at once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::kernels::launch::{Grid, buffer, contiguous, empty, expect, float, over, sizes, vector};
use crate::ops::kernels::row::{
    BATCH, HIDDEN, Rows, batch_max, own_lane, own_row, row_max, row_sum, scratch,
};

/// What is known of each token after some chunks: three tensors [T] f32.
pub struct LossState {
    /// The largest logit.
    pub maximum: CubeTensor,
    /// Σ exp(logit − maximum)
    pub sum: CubeTensor,
    /// The logit of the label; 0 until it has been seen.
    pub target: CubeTensor,
}

#[cube(launch_unchecked)]
fn reset(maximum: &mut [f32], sum: &mut [f32], target: &mut [f32]) {
    if ABSOLUTE_POS < maximum.len() {
        maximum[ABSOLUTE_POS] = HIDDEN.runtime();
        sum[ABSOLUTE_POS] = 0.0f32;
        target[ABSOLUTE_POS] = 0.0f32;
    }
}

/// `single` is the buffer of `logits`, element by element; `columns` the vectors of a row.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn observe_rows<N: Size>(
    logits: &[Vector<f32, N>],
    single: &[f32],
    labels: &[i32],
    maximum: &mut [f32],
    sum: &mut [f32],
    target: &mut [f32],
    first: i32,
    columns: usize,
    #[comptime] threads: usize,
) {
    let mut scratch = scratch(threads, 1usize);
    let row = own_row(threads);
    let lane = own_lane(threads);
    if row < labels.len() {
        let base = row * columns;
        let mut own_maximum = HIDDEN.runtime();
        let mut own_sum = 0.0f32;
        let mut start = lane;
        while start < columns {
            let mut values = Array::<Vector<f32, N>>::new(BATCH);
            #[unroll]
            for item in 0..BATCH {
                let column = start + item * threads;
                let mut value = Vector::<f32, N>::new(HIDDEN);
                if column < columns {
                    value = logits[base + column];
                }
                values[item] = value;
            }
            let top = batch_max::<N>(&values, own_maximum);
            let mut terms = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for item in 0..BATCH {
                terms += (values[item] - Vector::new(top)).exp();
            }
            own_sum = own_sum * (own_maximum - top).exp() + terms.vector_sum();
            own_maximum = top;
            start += comptime!(BATCH * threads);
        }
        let top = row_max(own_maximum, &mut scratch, threads);
        let total = row_sum(own_sum * (own_maximum - top).exp(), &mut scratch, threads);
        if lane == 0 {
            let before = maximum[row];
            let after = max(before, top);
            maximum[row] = after;
            sum[row] = sum[row] * (before - after).exp() + total * (top - after).exp();
            let place = labels[row] - first;
            let width = columns * N::value();
            if place >= 0 && (place as usize) < width {
                target[row] = single[row * width + place as usize];
            }
        }
    }
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn gradient<O: Float, N: Size>(
    logits: &[Vector<f32, N>],
    dlogits: &mut [Vector<O, N>],
    lse: &[f32],
    labels: &[i32],
    scale: &[f32],
    first: i32,
    columns: usize,
    #[comptime] threads: usize,
    #[define(O)] _type: ElemType,
) {
    let row = own_row(threads);
    let lane = own_lane(threads);
    if row < labels.len() {
        let base = row * columns;
        let label = labels[row];
        let total = lse[row];
        let factor = scale[0];
        let mut start = lane;
        while start < columns {
            let mut values = Array::<Vector<f32, N>>::new(BATCH);
            #[unroll]
            for item in 0..BATCH {
                let column = start + item * threads;
                let mut value = Vector::<f32, N>::new(HIDDEN);
                if column < columns {
                    value = logits[base + column];
                }
                values[item] = value;
            }
            #[unroll]
            for item in 0..BATCH {
                let column = start + item * threads;
                if column < columns {
                    let mut result = Vector::<f32, N>::new(0.0f32);
                    if label >= 0 {
                        let p = (values[item] - Vector::new(total)).exp();
                        let entry = first + (column * N::value()) as i32;
                        #[unroll]
                        for k in 0..N::value() {
                            let hit = select(entry + k as i32 == label, 1.0f32, 0.0f32);
                            result.insert(k, (p.extract(k) - hit) * factor);
                        }
                    }
                    dlogits[base + column] = Vector::cast_from(result);
                }
            }
            start += comptime!(BATCH * threads);
        }
    }
}

#[cube(launch_unchecked)]
fn finish(maximum: &[f32], sum: &[f32], target: &[f32], labels: &[i32], losses: &mut [f32], lse: &mut [f32]) {
    if ABSOLUTE_POS < losses.len() {
        let total = maximum[ABSOLUTE_POS] + sum[ABSOLUTE_POS].ln();
        lse[ABSOLUTE_POS] = total;
        losses[ABSOLUTE_POS] = select(labels[ABSOLUTE_POS] >= 0, total - target[ABSOLUTE_POS], 0.0f32);
    }
}

impl LossState {
    /// Of `tokens` tokens before the first chunk, on the device of `like`.
    pub fn new(like: &CubeTensor, tokens: usize) -> Self {
        let [maximum, sum, target] = std::array::from_fn(|_| empty(like, [tokens], DType::F32));
        let grid = Grid::of(tokens);
        // SAFETY: the buffers hold `tokens` elements and the kernel checks their end.
        unsafe {
            reset::launch_unchecked(
                &like.client,
                grid.count,
                grid.dim,
                buffer(&maximum),
                buffer(&sum),
                buffer(&target),
            );
        }
        Self { maximum, sum, target }
    }
}

/// Takes the logits [T, C] f32 of the vocabulary's entries `first..first + C` into `state`. The
/// labels [T] are i32; a negative one is a token that does not count.
pub fn observe_chunk(logits: &CubeTensor, labels: &CubeTensor, first: usize, state: &mut LossState) {
    let (logits, labels) = (contiguous(logits), contiguous(labels));
    let [tokens, width] = sizes(&logits, "logits");
    expect(&logits, DType::F32, tokens * width, "logits");
    expect(&labels, DType::I32, tokens, "labels");
    for tensor in [&state.maximum, &state.sum, &state.target] {
        expect(tensor, DType::F32, tokens, "the state");
    }
    let vector = vector(DType::F32, &[width]);
    let columns = width / vector;
    let rows = Rows::of(columns, BATCH);
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors, which the buffers hold.
    unsafe {
        observe_rows::launch_unchecked(
            &logits.client,
            rows.count(tokens),
            rows.dim(),
            vector,
            buffer(&logits),
            buffer(&logits),
            buffer(&labels),
            buffer(&state.maximum),
            buffer(&state.sum),
            buffer(&state.target),
            first as i32,
            columns,
            rows.threads,
        );
    }
}

/// The loss of each token, lse − target or 0 for one that does not count, and its
/// lse = log Σ exp(logit) over all chunks: both [T] f32.
pub fn token_losses(state: &LossState, labels: &CubeTensor) -> (CubeTensor, CubeTensor) {
    let labels = contiguous(labels);
    let [tokens] = sizes(&state.maximum, "the state");
    expect(&labels, DType::I32, tokens, "labels");
    let [losses, lse] = std::array::from_fn(|_| empty(&labels, [tokens], DType::F32));
    let grid = Grid::of(tokens);
    // SAFETY: the buffers hold `tokens` elements and the kernel checks their end.
    unsafe {
        finish::launch_unchecked(
            &labels.client,
            grid.count,
            grid.dim,
            buffer(&state.maximum),
            buffer(&state.sum),
            buffer(&state.target),
            buffer(&labels),
            buffer(&losses),
            buffer(&lse),
        );
    }
    (losses, lse)
}

/// dlogits = (exp(logit − lse) − \[label = entry\]) · scale, rows of zeros for tokens that do not
/// count.
///
/// logits [T, C] f32 of the entries `first..first + C`, lse [T] f32, labels [T] i32, scale [1] f32
/// → [T, C] of type `out`, in the memory of the logits where that is f32 and nobody else holds
/// them.
pub fn chunk_gradient(
    logits: CubeTensor,
    lse: &CubeTensor,
    labels: &CubeTensor,
    first: usize,
    scale: &CubeTensor,
    out: DType,
) -> CubeTensor {
    let (logits, labels) = (burn_cubecl::kernel::into_contiguous(logits), contiguous(labels));
    let [tokens, width] = sizes(&logits, "logits");
    expect(&logits, DType::F32, tokens * width, "logits");
    expect(lse, DType::F32, tokens, "lse");
    expect(&labels, DType::I32, tokens, "labels");
    expect(scale, DType::F32, 1, "scale");
    let vector = vector(DType::F32, &[width]);
    let columns = width / vector;
    let rows = Rows::of(columns, BATCH);
    let (dlogits, argument) = over(&logits, 0, out);
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors, which the buffers hold.
    unsafe {
        gradient::launch_unchecked(
            &logits.client,
            rows.count(tokens),
            rows.dim(),
            vector,
            buffer(&logits),
            argument,
            buffer(lse),
            buffer(&labels),
            buffer(scale),
            first as i32,
            columns,
            rows.threads,
            float(out),
        );
    }
    dlogits
}
