//! The kernels of masked softmax: the threads of a row run over its visible keys once, or twice
//! when their registers do not hold them.

use cubecl::prelude::*;

use super::softmax_rows::{
    Options, View, differentiate, exponentials, load, load_upstream, multiply, slopes, store, visible_row,
    zeros,
};
use crate::ops::kernels::row::{
    BATCH, HIDDEN, batch_max, own_lane, own_row, row_max, row_sum, row_sums, scratch,
};

/// P = softmax of the scores over each row's visible keys, 0 elsewhere. `segments` holds the
/// segment of every position as vectors of keys, `own` the same one by one. When a row `fits` into
/// one batch of its threads, its terms stay in the registers.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub fn softmax<O: Float, N: Size>(
    scores: &[Vector<f32, N>],
    out: &mut [Vector<O, N>],
    segments: ComptimeOption<&[Vector<i32, N>]>,
    own: ComptimeOption<&[i32]>,
    view: View,
    columns: usize,
    scale: f32,
    cap: f32,
    #[comptime] threads: usize,
    #[comptime] fits: bool,
    #[comptime] options: Options,
    #[define(O)] _type: ElemType,
) {
    let mut scratch = scratch(threads, 1usize);
    let place = own_row(threads);
    let lane = own_lane(threads);
    if place * columns < scores.len() {
        let row = visible_row::<N>(place, columns, &view, &own);
        let mut maximum = HIDDEN.runtime();
        let mut sum = 0.0f32;
        let mut terms = zeros::<N>();
        let mut start = lane;
        while start < row.seen {
            let values = load::<N>(scores, &segments, &row, start, scale, cap, threads, options);
            let top = batch_max::<N>(&values, maximum);
            let mut total = Vector::<f32, N>::new(0.0f32);
            exponentials::<N>(&values, top, &mut terms);
            #[unroll]
            for item in 0..BATCH {
                total += terms[item];
            }
            sum = sum * (maximum - top).exp() + total.vector_sum();
            maximum = top;
            start += comptime!(BATCH * threads);
        }
        let top = row_max(maximum, &mut scratch, threads);
        let rescale = (maximum - top).exp();
        let inverse = 1.0f32 / row_sum(sum * rescale, &mut scratch, threads);
        let factor = select(fits, rescale * inverse, inverse);

        let mut start = lane;
        while start < columns {
            if comptime!(!fits) {
                let values = load::<N>(scores, &segments, &row, start, scale, cap, threads, options);
                exponentials::<N>(&values, top, &mut terms);
            }
            multiply::<N>(&mut terms, factor);
            store::<O, N>(&terms, out, row.base, start, columns, threads);
            start += comptime!(BATCH * threads);
        }
    }
}

/// P as [`softmax`], and scale · P ⊙ (dP − Σ P ⊙ dP), with a soft cap times its [`slopes`].
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub fn softmax_backward<O: Float, N: Size>(
    scores: &[Vector<f32, N>],
    dp: &[Vector<f32, N>],
    out: &mut [Vector<O, N>],
    ds: &mut [Vector<O, N>],
    segments: ComptimeOption<&[Vector<i32, N>]>,
    own: ComptimeOption<&[i32]>,
    view: View,
    columns: usize,
    scale: f32,
    cap: f32,
    #[comptime] threads: usize,
    #[comptime] fits: bool,
    #[comptime] options: Options,
    #[define(O)] _type: ElemType,
) {
    let mut scratch = scratch(threads, 2usize);
    let place = own_row(threads);
    let lane = own_lane(threads);
    if place * columns < scores.len() {
        let row = visible_row::<N>(place, columns, &view, &own);
        let mut maximum = HIDDEN.runtime();
        let mut sum = 0.0f32;
        let mut weighted = 0.0f32;
        let mut terms = zeros::<N>();
        let mut upstream = zeros::<N>();
        let mut slope = zeros::<N>();
        let mut start = lane;
        while start < row.seen {
            load_upstream::<N>(dp, &row, &mut upstream, start, threads);
            let values = load::<N>(scores, &segments, &row, start, scale, cap, threads, options);
            slopes::<N>(&values, cap, &mut slope, options);
            let top = batch_max::<N>(&values, maximum);
            let mut total = Vector::<f32, N>::new(0.0f32);
            let mut products = Vector::<f32, N>::new(0.0f32);
            exponentials::<N>(&values, top, &mut terms);
            #[unroll]
            for item in 0..BATCH {
                total += terms[item];
                products += terms[item] * upstream[item];
            }
            let rescale = (maximum - top).exp();
            sum = sum * rescale + total.vector_sum();
            weighted = weighted * rescale + products.vector_sum();
            maximum = top;
            start += comptime!(BATCH * threads);
        }
        let top = row_max(maximum, &mut scratch, threads);
        let rescale = (maximum - top).exp();
        let (total, along) = row_sums(sum * rescale, weighted * rescale, &mut scratch, threads);
        let inverse = 1.0f32 / total;
        let mean = along * inverse;
        let factor = select(fits, rescale * inverse, inverse);

        let mut start = lane;
        while start < columns {
            if comptime!(!fits) {
                load_upstream::<N>(dp, &row, &mut upstream, start, threads);
                let values = load::<N>(scores, &segments, &row, start, scale, cap, threads, options);
                slopes::<N>(&values, cap, &mut slope, options);
                exponentials::<N>(&values, top, &mut terms);
            }
            multiply::<N>(&mut terms, factor);
            differentiate::<N>(&terms, &mut upstream, &slope, mean, scale, options);
            store::<O, N>(&terms, out, row.base, start, columns, threads);
            store::<O, N>(&upstream, ds, row.base, start, columns, threads);
            start += comptime!(BATCH * threads);
        }
    }
}
