//! Reductions over rows: how many planes share a row, and sums and maxima over a row's threads.

use cubecl::prelude::*;

/// Threads of a plane.
pub const PLANE: usize = 32;
/// Rows of a block when one plane takes a row.
pub const ROWS_PER_BLOCK: usize = 4;
/// The most planes that share a row.
const MOST_PLANES: usize = 16;
/// Vectors that a thread should have, so that its loads overlap.
const VECTORS_PER_THREAD: usize = 4;

/// How a kernel covers rows: a plane for each row, or a block of several planes for each.
pub struct Rows {
    pub planes: usize,
    pub dim: CubeDim,
    /// Rows that a block takes at once.
    pub per_block: usize,
}

impl Rows {
    /// Rows of `vectors` vectors.
    pub fn of(vectors: usize) -> Self {
        let planes = vectors.div_ceil(PLANE * VECTORS_PER_THREAD).next_power_of_two().min(MOST_PLANES);
        let per_block = if planes == 1 { ROWS_PER_BLOCK } else { 1 };
        Self { planes, per_block, dim: CubeDim::new_2d(PLANE as u32, (planes * per_block) as u32) }
    }

    /// Threads that share a row.
    pub fn threads(&self) -> usize {
        self.planes * PLANE
    }

    /// As many blocks as `rows` rows need.
    pub fn blocks(&self, rows: usize) -> usize {
        rows.div_ceil(self.per_block)
    }

    pub fn count(&self, rows: usize) -> CubeCount {
        CubeCount::Static(self.blocks(rows) as u32, 1, 1)
    }
}

/// The first row of this thread.
#[cube]
pub fn own_row(#[comptime] planes: usize) -> usize {
    if comptime!(planes == 1) { (CUBE_POS_X * CUBE_DIM_Y + UNIT_POS_Y) as usize } else { CUBE_POS_X as usize }
}

/// This thread's place among those of its row.
#[cube]
pub fn own_lane(#[comptime] planes: usize) -> usize {
    if comptime!(planes == 1) { UNIT_POS_X as usize } else { UNIT_POS as usize }
}

/// Σ value over the threads of a row; every thread of the block calls it when several planes
/// share the row. `scratch` holds a value for each plane.
#[cube]
pub fn row_sum(value: f32, scratch: &mut Shared<[f32]>, #[comptime] planes: usize) -> f32 {
    let mut total = plane_sum(value);
    if comptime!(planes > 1) {
        // The values of the reduction before may still be read.
        sync_cube();
        if UNIT_POS_X == 0 {
            scratch[UNIT_POS_Y as usize] = total;
        }
        sync_cube();
        total = scratch[0];
        #[unroll]
        for plane in 1..planes {
            total += scratch[plane];
        }
    }
    total
}

/// max value over the threads of a row, as [`row_sum`].
#[cube]
pub fn row_max(value: f32, scratch: &mut Shared<[f32]>, #[comptime] planes: usize) -> f32 {
    let mut top = plane_max(value);
    if comptime!(planes > 1) {
        sync_cube();
        if UNIT_POS_X == 0 {
            scratch[UNIT_POS_Y as usize] = top;
        }
        sync_cube();
        top = scratch[0];
        #[unroll]
        for plane in 1..planes {
            top = max(top, scratch[plane]);
        }
    }
    top
}

/// Below every score: what a hidden key scores, and the maximum of nothing. Finite, so that the
/// difference of two is not NaN.
pub const HIDDEN: f32 = -1e30;

/// The online maximum and Σ exp(x − maximum) after the elements of `values`.
#[cube]
pub fn observe<N: Size>(values: Vector<f32, N>, maximum: f32, sum: f32) -> (f32, f32) {
    let mut top = maximum;
    #[unroll]
    for k in 0..N::value() {
        top = max(top, values.extract(k));
    }
    let terms = (values - Vector::new(top)).exp();
    (top, sum * (maximum - top).exp() + terms.vector_sum())
}
