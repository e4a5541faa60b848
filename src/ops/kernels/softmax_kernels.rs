//! The kernels of masked softmax: the threads of a row run over its visible keys twice.

use cubecl::prelude::*;

use super::row::{HIDDEN, observe, own_lane, own_row, row_max, row_sum};

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
    /// Positions of a sequence in `segments`.
    pub total: usize,
}

/// scale · score of the keys from `first` on that lie below `limit` in the segment `own`; HIDDEN
/// for the others.
#[cube]
fn masked<N: Size>(
    scores: Vector<f32, N>,
    segments: Vector<i32, N>,
    own: i32,
    first: usize,
    limit: usize,
    scale: f32,
) -> Vector<f32, N> {
    let mut result = scores * Vector::new(scale);
    #[unroll]
    for k in 0..N::value() {
        let visible = first + k < limit && segments.extract(k) == own;
        result.insert(k, select(visible, result.extract(k), HIDDEN));
    }
    result
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

/// P = softmax(scale · scores) over each row's visible keys, 0 elsewhere. `segments` holds the
/// segment of every position as vectors of keys, `own` the same one by one.
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
    #[comptime] planes: usize,
    #[define(O)] _type: ElemType,
) {
    let threads = comptime!(32 * planes);
    let mut scratch = Shared::<[f32]>::new_slice(planes);
    let row = own_row(planes);
    let lane = own_lane(planes);
    let base = row * columns;
    if base < scores.len() {
        let position = view.query_start + (row % view.rows) / view.group;
        let sequence = row / view.rows / view.kv_heads;
        let limit = position + 1;
        let seen = min(limit.div_ceil(N::value()), columns);
        #[comptime]
        let segment = match &own {
            ComptimeOption::Some(own) => own[sequence * view.total + position],
            ComptimeOption::None => 0i32.runtime(),
        };
        let keys = sequence * view.total / N::value();

        let mut maximum = HIDDEN.runtime();
        let mut sum = 0.0f32;
        let mut column = lane;
        while column < seen {
            let neighbours = segments_at::<N>(&segments, keys + column);
            let first = column * N::value();
            let values = masked::<N>(scores[base + column], neighbours, segment, first, limit, scale);
            let (top, total) = observe::<N>(values, maximum, sum);
            maximum = top;
            sum = total;
            column += threads;
        }
        let top = row_max(maximum, &mut scratch, planes);
        let total = row_sum(sum * (maximum - top).exp(), &mut scratch, planes);
        let inverse = 1.0f32 / total;

        let mut column = lane;
        while column < columns {
            let mut p = Vector::<f32, N>::new(0.0f32);
            if column < seen {
                let neighbours = segments_at::<N>(&segments, keys + column);
                let first = column * N::value();
                let values = masked::<N>(scores[base + column], neighbours, segment, first, limit, scale);
                p = (values - Vector::new(top)).exp() * Vector::new(inverse);
            }
            out[base + column] = Vector::cast_from(p);
            column += threads;
        }
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
    #[comptime] planes: usize,
    #[define(O)] _type: ElemType,
) {
    let threads = comptime!(32 * planes);
    let mut scratch = Shared::<[f32]>::new_slice(planes);
    let row = own_row(planes);
    let lane = own_lane(planes);
    let base = row * columns;
    if base < scores.len() {
        let position = view.query_start + (row % view.rows) / view.group;
        let sequence = row / view.rows / view.kv_heads;
        let limit = position + 1;
        let seen = min(limit.div_ceil(N::value()), columns);
        #[comptime]
        let segment = match &own {
            ComptimeOption::Some(own) => own[sequence * view.total + position],
            ComptimeOption::None => 0i32.runtime(),
        };
        let keys = sequence * view.total / N::value();

        let mut maximum = HIDDEN.runtime();
        let mut sum = 0.0f32;
        let mut weighted = 0.0f32;
        let mut column = lane;
        while column < seen {
            let neighbours = segments_at::<N>(&segments, keys + column);
            let first = column * N::value();
            let values = masked::<N>(scores[base + column], neighbours, segment, first, limit, scale);
            let mut top = maximum;
            #[unroll]
            for k in 0..N::value() {
                top = max(top, values.extract(k));
            }
            let terms = (values - Vector::new(top)).exp();
            let rescale = (maximum - top).exp();
            sum = sum * rescale + terms.vector_sum();
            weighted = weighted * rescale + (terms * dp[base + column]).vector_sum();
            maximum = top;
            column += threads;
        }
        let top = row_max(maximum, &mut scratch, planes);
        let rescale = (maximum - top).exp();
        let inverse = 1.0f32 / row_sum(sum * rescale, &mut scratch, planes);
        let mean = row_sum(weighted * rescale, &mut scratch, planes) * inverse;

        let mut column = lane;
        while column < columns {
            let mut p = Vector::<f32, N>::new(0.0f32);
            let mut gradient = Vector::<f32, N>::new(0.0f32);
            if column < seen {
                let neighbours = segments_at::<N>(&segments, keys + column);
                let first = column * N::value();
                let values = masked::<N>(scores[base + column], neighbours, segment, first, limit, scale);
                p = (values - Vector::new(top)).exp() * Vector::new(inverse);
                gradient = Vector::new(scale) * p * (dp[base + column] - Vector::new(mean));
            }
            out[base + column] = Vector::cast_from(p);
            ds[base + column] = Vector::cast_from(gradient);
            column += threads;
        }
    }
}
