//! Cross entropy over a vocabulary that is seen in chunks of columns, so that the logits of a
//! token never exist all at once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{Grid, buffer, contiguous, empty, expect, float, over, sizes, vector};
use super::row::{HIDDEN, Rows, observe, own_lane, own_row, row_max, row_sum};

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
    #[comptime] planes: usize,
) {
    let threads = comptime!(32 * planes);
    let mut scratch = Shared::<[f32]>::new_slice(planes);
    let row = own_row(planes);
    let lane = own_lane(planes);
    if row < labels.len() {
        let base = row * columns;
        let mut own_maximum = HIDDEN.runtime();
        let mut own_sum = 0.0f32;
        let mut column = lane;
        while column < columns {
            let (top, total) = observe::<N>(logits[base + column], own_maximum, own_sum);
            own_maximum = top;
            own_sum = total;
            column += threads;
        }
        let top = row_max(own_maximum, &mut scratch, planes);
        let total = row_sum(own_sum * (own_maximum - top).exp(), &mut scratch, planes);
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
    #[define(O)] _type: ElemType,
) {
    if ABSOLUTE_POS < dlogits.len() {
        let row = ABSOLUTE_POS / columns;
        let label = labels[row];
        let mut result = Vector::<f32, N>::new(0.0f32);
        if label >= 0 {
            let p = (logits[ABSOLUTE_POS] - Vector::new(lse[row])).exp();
            let start = first + ((ABSOLUTE_POS % columns) * N::value()) as i32;
            #[unroll]
            for k in 0..N::value() {
                let hit = select(start + k as i32 == label, 1.0f32, 0.0f32);
                result.insert(k, (p.extract(k) - hit) * scale[0]);
            }
        }
        dlogits[ABSOLUTE_POS] = Vector::cast_from(result);
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
    let rows = Rows::of(columns);
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors, which the buffers hold.
    unsafe {
        observe_rows::launch_unchecked(
            &logits.client,
            rows.count(tokens),
            rows.dim,
            vector,
            buffer(&logits),
            buffer(&logits),
            buffer(&labels),
            buffer(&state.maximum),
            buffer(&state.sum),
            buffer(&state.target),
            first as i32,
            columns,
            rows.planes,
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
    let grid = Grid::of(tokens * width / vector);
    let (dlogits, argument) = over(&logits, 0, out);
    // SAFETY: the kernel checks the end of the gradient, which has the shape of the logits.
    unsafe {
        gradient::launch_unchecked(
            &logits.client,
            grid.count,
            grid.dim,
            vector,
            buffer(&logits),
            argument,
            buffer(lse),
            buffer(&labels),
            buffer(scale),
            first as i32,
            width / vector,
            float(out),
        );
    }
    dlogits
}
