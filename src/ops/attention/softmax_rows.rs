//! What the rows of a block of attention's scores see, and how their scores come to a thread.

use cubecl::prelude::*;

use crate::ops::kernels::row::{BATCH, HIDDEN};

/// What the rows of a block of scores may see.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct View {
    /// Position of the block's first query, and of its first key.
    pub query_start: usize,
    pub key_start: usize,
    /// Keys that a query sees at most.
    pub window: usize,
    /// Rows of a query position.
    pub group: usize,
    pub kv_heads: usize,
    /// Rows of a matrix.
    pub rows: usize,
    /// Positions of a sequence in the segments.
    pub total: usize,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    pub windowed: bool,
    pub capped: bool,
}

/// What one row sees, with keys counted from the block's first one.
#[derive(CubeType)]
pub struct Row {
    /// Its first vector of scores.
    pub base: usize,
    /// Its sequence's first vector of segments.
    keys: usize,
    /// Keys before this one may be visible.
    limit: usize,
    /// Those before this one are not.
    begin: usize,
    /// Vectors that hold them.
    pub seen: usize,
    /// Only keys of this segment are visible.
    segment: i32,
}

#[cube]
pub fn visible_row<N: Size>(row: usize, columns: usize, view: &View, own: &ComptimeOption<&[i32]>) -> Row {
    let position = view.query_start + (row % view.rows) / view.group;
    let sequence = row / view.rows / view.kv_heads;
    let limit = position + 1 - view.key_start;
    let mut begin = 0usize;
    if limit > view.window {
        begin = limit - view.window;
    }
    #[comptime]
    let segment = match own {
        ComptimeOption::Some(own) => own[sequence * view.total + position],
        ComptimeOption::None => 0i32.runtime(),
    };
    Row {
        base: row * columns,
        keys: (sequence * view.total + view.key_start) / N::value(),
        limit,
        begin,
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

/// The scores of a batch of vectors of products from `start` on, HIDDEN for keys that the row does not see.
#[cube]
pub fn load<N: Size>(
    scores: &[Vector<f32, N>],
    segments: &ComptimeOption<&[Vector<i32, N>]>,
    row: &Row,
    start: usize,
    scale: f32,
    cap: f32,
    #[comptime] threads: usize,
    #[comptime] options: Options,
) -> Array<Vector<f32, N>> {
    let mut values = Array::<Vector<f32, N>>::new(BATCH);
    #[unroll]
    for item in 0..BATCH {
        let column = start + item * threads;
        let mut value = Vector::<f32, N>::new(HIDDEN);
        if column < row.seen {
            value = scores[row.base + column] * Vector::new(scale);
            if comptime!(options.capped) {
                value = (value / Vector::new(cap)).tanh() * Vector::new(cap);
            }
            let neighbours = segments_at::<N>(segments, row.keys + column);
            #[unroll]
            for k in 0..N::value() {
                let key = column * N::value() + k;
                let mut visible = key < row.limit && neighbours.extract(k) == row.segment;
                if comptime!(options.windowed) {
                    visible = visible && key >= row.begin;
                }
                value.insert(k, select(visible, value.extract(k), HIDDEN));
            }
        }
        values[item] = value;
    }
    values
}

/// A batch of vectors of 0.
#[cube]
pub fn zeros<N: Size>() -> Array<Vector<f32, N>> {
    let mut values = Array::<Vector<f32, N>>::new(BATCH);
    #[unroll]
    for item in 0..BATCH {
        values[item] = Vector::new(0.0f32);
    }
    values
}

/// With a soft cap its slope 1 − (z / cap)² for a batch of scores z, 0 where they are hidden.
#[cube]
pub fn slopes<N: Size>(
    scores: &Array<Vector<f32, N>>,
    cap: f32,
    slopes: &mut Array<Vector<f32, N>>,
    #[comptime] options: Options,
) {
    if comptime!(options.capped) {
        #[unroll]
        for item in 0..BATCH {
            let mut slope = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for k in 0..N::value() {
                let tanh = max(scores[item].extract(k), -cap) / cap;
                slope.insert(k, 1.0f32 - tanh * tanh);
            }
            slopes[item] = slope;
        }
    }
}

/// A batch of vectors of dP from `start` on, 0 for keys that the row does not see.
#[cube]
pub fn load_upstream<N: Size>(
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

/// exp(score − top) of a batch of scores.
#[cube]
pub fn exponentials<N: Size>(scores: &Array<Vector<f32, N>>, top: f32, terms: &mut Array<Vector<f32, N>>) {
    #[unroll]
    for item in 0..BATCH {
        terms[item] = (scores[item] - Vector::new(top)).exp();
    }
}

/// Multiplies a batch of vectors.
#[cube]
pub fn multiply<N: Size>(values: &mut Array<Vector<f32, N>>, factor: f32) {
    #[unroll]
    for item in 0..BATCH {
        values[item] *= Vector::new(factor);
    }
}

/// scale · P ⊙ (dP − mean) in the place of dP, with a soft cap times its slopes.
#[cube]
pub fn differentiate<N: Size>(
    p: &Array<Vector<f32, N>>,
    dp: &mut Array<Vector<f32, N>>,
    slopes: &Array<Vector<f32, N>>,
    mean: f32,
    scale: f32,
    #[comptime] options: Options,
) {
    #[unroll]
    for item in 0..BATCH {
        dp[item] = Vector::new(scale) * p[item] * (dp[item] - Vector::new(mean));
        if comptime!(options.capped) {
            dp[item] *= slopes[item];
        }
    }
}

/// Writes a batch of vectors from `start` on where the row, which begins at `base`, has them.
#[cube]
pub fn store<O: Float, N: Size>(
    values: &Array<Vector<f32, N>>,
    out: &mut [Vector<O, N>],
    base: usize,
    start: usize,
    columns: usize,
    #[comptime] threads: usize,
) {
    #[unroll]
    for item in 0..BATCH {
        let column = start + item * threads;
        if column < columns {
            out[base + column] = Vector::cast_from(values[item]);
        }
    }
}
