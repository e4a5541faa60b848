//! The kernels of the cross entropy over chunks of the vocabulary.

use cubecl::prelude::*;

use crate::ops::kernels::row::{BATCH, HIDDEN, batch_max, own_lane, own_row, row_max, row_sum, scratch};

#[cube(launch_unchecked)]
pub fn reset(maximum: &mut [f32], sum: &mut [f32], target: &mut [f32]) {
    if ABSOLUTE_POS < maximum.len() {
        maximum[ABSOLUTE_POS] = HIDDEN.runtime();
        sum[ABSOLUTE_POS] = 0.0f32;
        target[ABSOLUTE_POS] = 0.0f32;
    }
}

/// How logits follow from products, at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub scaled: bool,
    pub capped: bool,
}

/// Logits of products.
#[cube]
fn logit<N: Size>(z: Vector<f32, N>, scale: f32, soft_cap: f32, #[comptime] form: Form) -> Vector<f32, N> {
    let mut logit = z;
    if comptime!(form.scaled) {
        logit *= Vector::new(scale);
    }
    if comptime!(form.capped) {
        logit = Vector::new(soft_cap) * (logit / Vector::new(soft_cap)).tanh();
    }
    logit
}

/// Logits in the place of products.
#[cube(launch_unchecked)]
pub fn shape<N: Size>(
    z: &[Vector<f32, N>],
    logits: &mut [Vector<f32, N>],
    scale: f32,
    soft_cap: f32,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS < logits.len() {
        logits[ABSOLUTE_POS] = logit::<N>(z[ABSOLUTE_POS], scale, soft_cap, form);
    }
}

/// The logits of a batch of a row's vectors from `start` on; behind the row hidden ones.
#[cube]
#[allow(clippy::too_many_arguments)]
fn load_batch<N: Size>(
    products: &[Vector<f32, N>],
    values: &mut Array<Vector<f32, N>>,
    base: usize,
    start: usize,
    columns: usize,
    scale: f32,
    soft_cap: f32,
    #[comptime] form: Form,
    #[comptime] threads: usize,
) {
    #[unroll]
    for item in 0..BATCH {
        let column = start + item * threads;
        let mut value = Vector::<f32, N>::new(HIDDEN);
        if column < columns {
            value = logit::<N>(products[base + column], scale, soft_cap, form);
        }
        values[item] = value;
    }
}

/// `single` is the buffer of the products `logits`, element by element; `columns` the vectors of a row.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub fn observe_rows<N: Size>(
    logits: &[Vector<f32, N>],
    single: &[f32],
    labels: &[i32],
    maximum: &mut [f32],
    sum: &mut [f32],
    target: &mut [f32],
    first: i32,
    columns: usize,
    scale: f32,
    soft_cap: f32,
    #[comptime] form: Form,
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
            load_batch::<N>(logits, &mut values, base, start, columns, scale, soft_cap, form, threads);
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
                let own = Vector::<f32, Const<1>>::new(single[row * width + place as usize]);
                target[row] = logit::<Const<1>>(own, scale, soft_cap, form).extract(0usize);
            }
        }
    }
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub fn gradient<O: Float, N: Size>(
    logits: &[Vector<f32, N>],
    dlogits: &mut [Vector<O, N>],
    lse: &[f32],
    labels: &[i32],
    scale: &[f32],
    first: i32,
    columns: usize,
    logit_scale: f32,
    soft_cap: f32,
    #[comptime] form: Form,
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
            load_batch::<N>(logits, &mut values, base, start, columns, logit_scale, soft_cap, form, threads);
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
                        if comptime!(form.capped) {
                            let share = values[item] / Vector::new(soft_cap);
                            result *= Vector::new(1.0f32) - share * share;
                        }
                        if comptime!(form.scaled) {
                            result *= Vector::new(logit_scale);
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
pub fn finish(
    maximum: &[f32],
    sum: &[f32],
    target: &[f32],
    labels: &[i32],
    losses: &mut [f32],
    lse: &mut [f32],
) {
    if ABSOLUTE_POS < losses.len() {
        let total = maximum[ABSOLUTE_POS] + sum[ABSOLUTE_POS].ln();
        lse[ABSOLUTE_POS] = total;
        losses[ABSOLUTE_POS] = select(labels[ABSOLUTE_POS] >= 0, total - target[ABSOLUTE_POS], 0.0f32);
    }
}
