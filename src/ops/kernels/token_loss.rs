//! Cross entropy of tokens whose logits exist whole: the loss of each, and its gradient at once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{buffer, contiguous, expect, float, sizes, vector};
use super::row::{BATCH, HIDDEN, Rows, batch_max, own_lane, own_row, row_max, row_sum, scratch};

/// A vector of a row's logits, with [`HIDDEN`] behind the vocabulary.
#[cube]
fn logits_at<N: Size>(
    logits: &[Vector<f32, N>],
    base: usize,
    column: usize,
    columns: usize,
    vocab: usize,
) -> Vector<f32, N> {
    let mut value = Vector::<f32, N>::new(HIDDEN);
    if column < columns {
        value = logits[base + column];
        let first = column * N::value();
        if first + N::value() > vocab {
            #[unroll]
            for k in 0..N::value() {
                value.insert(k, select(first + k < vocab, value.extract(k), HIDDEN));
            }
        }
    }
    value
}

/// `single` is the buffer of `logits`, element by element; `columns` the vectors of a row of `logits` and of
/// `dlogits`, which lie there with what pads them.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn lose<O: Float, N: Size>(
    logits: &[Vector<f32, N>],
    single: &[f32],
    labels: &[i32],
    losses: &mut [f32],
    dlogits: &mut [Vector<O, N>],
    tokens: usize,
    first_token: usize,
    first_row: usize,
    vocab: usize,
    columns: usize,
    gain: f32,
    #[comptime] threads: usize,
    #[define(O)] _type: ElemType,
) {
    let mut scratch = scratch(threads, 1usize);
    let row = own_row(threads);
    let lane = own_lane(threads);
    if row < tokens {
        let base = row * columns;
        let label = labels[first_token + row];
        let mut own_maximum = HIDDEN.runtime();
        let mut own_sum = 0.0f32;
        let mut start = lane;
        let mut batches = 0usize;
        while start < columns {
            let mut values = Array::<Vector<f32, N>>::new(BATCH);
            #[unroll]
            for item in 0..BATCH {
                values[item] = logits_at::<N>(logits, base, start + item * threads, columns, vocab);
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
            batches += 1usize;
        }
        let top = row_max(own_maximum, &mut scratch, threads);
        let total = row_sum(own_sum * (own_maximum - top).exp(), &mut scratch, threads);
        let lse = top + total.ln();
        if lane == 0 {
            let mut loss = 0.0f32;
            if label >= 0 && (label as usize) < vocab {
                loss = lse - single[base * N::value() + label as usize];
            }
            losses[first_token + row] = loss;
        }
        // Backwards: what was read last is still in the cache.
        while batches > 0 {
            batches -= 1usize;
            let start = lane + batches * comptime!(BATCH * threads);
            let mut values = Array::<Vector<f32, N>>::new(BATCH);
            #[unroll]
            for item in 0..BATCH {
                values[item] = logits_at::<N>(logits, base, start + item * threads, columns, vocab);
            }
            #[unroll]
            for item in 0..BATCH {
                let column = start + item * threads;
                if column < columns {
                    let mut result = Vector::<f32, N>::new(0.0f32);
                    if label >= 0 {
                        let p = (values[item] - Vector::new(lse)).exp();
                        let entry = (column * N::value()) as i32;
                        #[unroll]
                        for k in 0..N::value() {
                            let hit = select(entry + k as i32 == label, 1.0f32, 0.0f32);
                            result.insert(k, (p.extract(k) - hit) * gain);
                        }
                    }
                    dlogits[(first_row + row) * columns + column] = Vector::cast_from(result);
                }
            }
        }
    }
}

/// Which tokens a call is of.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub tokens: usize,
    /// The first one, of all that have labels and losses.
    pub first_token: usize,
    /// Its row of the gradient.
    pub first_row: usize,
    /// What its gradient is multiplied by.
    pub gain: f32,
}

/// For each token of the part its loss log Σ exp(logits) − logits\[label\], and the loss's gradient by its logits,
/// (softmax − onehot) · gain; 0 for a token whose label is negative.
///
/// logits [at least the part's tokens, padded] f32, of which the first `vocab` columns count; labels [T] i32 →
/// losses [T] f32 and dlogits [R, padded], in their memory. What pads dlogits means nothing.
pub fn losses_and_gradients(
    logits: &CubeTensor,
    labels: &CubeTensor,
    losses: &CubeTensor,
    dlogits: &CubeTensor,
    vocab: usize,
    part: Part,
) {
    let labels = contiguous(labels);
    let Part { tokens, first_token, first_row, gain } = part;
    let [rows, padded] = sizes(logits, "logits");
    let [places, columns] = sizes(dlogits, "dlogits");
    let [all] = sizes(&labels, "labels");
    expect(logits, DType::F32, rows * padded, "logits");
    expect(&labels, DType::I32, all, "labels");
    expect(losses, DType::F32, all, "losses");
    assert_eq!(padded, columns, "the columns of logits and their gradient");
    assert!(
        vocab <= padded && tokens <= rows && first_token + tokens <= all && first_row + tokens <= places,
        "{part:?} of {rows} rows of {vocab} logits, {all} tokens and {places} rows of their gradient"
    );
    let vector = vector(DType::F32, &[padded]);
    let columns = padded / vector;
    let covered = Rows::of(columns, BATCH);
    // SAFETY: the kernel stays within the part's rows of `columns` vectors and its tokens, which the buffers hold.
    unsafe {
        lose::launch_unchecked(
            &logits.client,
            covered.count(tokens),
            covered.dim(),
            vector,
            buffer(logits),
            buffer(logits),
            buffer(&labels),
            buffer(losses),
            buffer(dlogits),
            tokens,
            first_token,
            first_row,
            vocab,
            columns,
            gain,
            covered.threads,
            float(dlogits.dtype),
        );
    }
}
