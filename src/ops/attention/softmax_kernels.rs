//! The kernels of masked softmax: the threads of a row run over its visible keys once, or twice
//! when their registers do not hold them.

use cubecl::prelude::*;

use crate::ops::kernels::row::{
    BATCH, HIDDEN, batch_max, own_lane, own_row, row_max, row_sum, row_sums, scratch,
};

/// What the rows of a block of scores may see.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct View {
    /// Position of the block's first query.
    pub query_start: usize,
    /// Rows of a query position.
    pub group: usize,
    pub kv_heads: usize,
    /// Rows of a matrix.
    pub rows: usize,
    /// Positions of a sequence in the segments.
    pub total: usize,
}

/// What one row sees.
#[derive(CubeType)]
struct Row {
    /// Its first vector of scores.
    base: usize,
    /// Its sequence's first vector of segments.
    keys: usize,
    /// Keys before this one may be visible.
    limit: usize,
    /// Vectors that hold them.
    seen: usize,
    /// Only keys of this segment are visible.
    segment: i32,
}

#[cube]
fn visible_row<N: Size>(row: usize, columns: usize, view: &View, own: &ComptimeOption<&[i32]>) -> Row {
    let position = view.query_start + (row % view.rows) / view.group;
    let sequence = row / view.rows / view.kv_heads;
    let limit = position + 1;
    #[comptime]
    let segment = match own {
        ComptimeOption::Some(own) => own[sequence * view.total + position],
        ComptimeOption::None => 0i32.runtime(),
    };
    Row {
        base: row * columns,
        keys: sequence * view.total / N::value(),
        limit,
        seen: min(limit.div_ceil(N::value()), columns),
        segment,
    }
}

/// The segments of a vector of keys.
#[cube]
fn segments_at<N: Size>(segments: &ComptimeOption<&[Vector<i32, N>]>, place: usize) -> Vector<i32, N> {
    #[comptime]
    match segments {
        ComptimeOption::Some(segments) => segments[place],
        ComptimeOption::None => Vector::<i32, N>::new(0i32),
    }
}

/// scale · score of a batch of vectors from `start` on, HIDDEN for keys that the row does not see.
#[cube]
fn load<N: Size>(
    scores: &[Vector<f32, N>],
    segments: &ComptimeOption<&[Vector<i32, N>]>,
    row: &Row,
    start: usize,
    scale: f32,
    #[comptime] threads: usize,
) -> Array<Vector<f32, N>> {
    let mut values = Array::<Vector<f32, N>>::new(BATCH);
    #[unroll]
    for item in 0..BATCH {
        let column = start + item * threads;
        let mut value = Vector::<f32, N>::new(HIDDEN);
        if column < row.seen {
            value = scores[row.base + column] * Vector::new(scale);
            let neighbours = segments_at::<N>(segments, row.keys + column);
            #[unroll]
            for k in 0..N::value() {
                let key = column * N::value() + k;
                let visible = key < row.limit && neighbours.extract(k) == row.segment;
                value.insert(k, select(visible, value.extract(k), HIDDEN));
            }
        }
        values[item] = value;
    }
    values
}

/// A batch of vectors of 0.
#[cube]
fn zeros<N: Size>() -> Array<Vector<f32, N>> {
    let mut values = Array::<Vector<f32, N>>::new(BATCH);
    #[unroll]
    for item in 0..BATCH {
        values[item] = Vector::new(0.0f32);
    }
    values
}

/// P = softmax(scale · scores) over each row's visible keys, 0 elsewhere. `segments` holds the
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
    #[comptime] threads: usize,
    #[comptime] fits: bool,
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
            let values = load::<N>(scores, &segments, &row, start, scale, threads);
            let top = batch_max::<N>(&values, maximum);
            let mut total = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for item in 0..BATCH {
                terms[item] = (values[item] - Vector::new(top)).exp();
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
                let values = load::<N>(scores, &segments, &row, start, scale, threads);
                #[unroll]
                for item in 0..BATCH {
                    terms[item] = (values[item] - Vector::new(top)).exp();
                }
            }
            #[unroll]
            for item in 0..BATCH {
                let column = start + item * threads;
                if column < columns {
                    out[row.base + column] = Vector::cast_from(terms[item] * Vector::new(factor));
                }
            }
            start += comptime!(BATCH * threads);
        }
    }
}

/// A batch of vectors of dP from `start` on, 0 for keys that the row does not see.
#[cube]
fn load_upstream<N: Size>(
    dp: &[Vector<f32, N>],
    row: &Row,
    values: &mut Array<Vector<f32, N>>,
    start: usize,
    #[comptime] threads: usize,
) {
    #[unroll]
    for item in 0..BATCH {
        let column = start + item * threads;
        let mut value = Vector::<f32, N>::new(0.0f32);
        if column < row.seen {
            value = dp[row.base + column];
        }
        values[item] = value;
    }
}

/// P as [`softmax`] and dS = scale · P ⊙ (dP − Σ P ⊙ dP).
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
    #[comptime] threads: usize,
    #[comptime] fits: bool,
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
        let mut start = lane;
        while start < row.seen {
            load_upstream::<N>(dp, &row, &mut upstream, start, threads);
            let values = load::<N>(scores, &segments, &row, start, scale, threads);
            let top = batch_max::<N>(&values, maximum);
            let mut total = Vector::<f32, N>::new(0.0f32);
            let mut products = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for item in 0..BATCH {
                terms[item] = (values[item] - Vector::new(top)).exp();
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
                let values = load::<N>(scores, &segments, &row, start, scale, threads);
                #[unroll]
                for item in 0..BATCH {
                    terms[item] = (values[item] - Vector::new(top)).exp();
                }
            }
            #[unroll]
            for item in 0..BATCH {
                let column = start + item * threads;
                if column < columns {
                    let p = terms[item] * Vector::new(factor);
                    let gradient = Vector::new(scale) * p * (upstream[item] - Vector::new(mean));
                    out[row.base + column] = Vector::cast_from(p);
                    ds[row.base + column] = Vector::cast_from(gradient);
                }
            }
            start += comptime!(BATCH * threads);
        }
    }
}
