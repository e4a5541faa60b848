//! Reductions over rows: how many threads share a row, and sums and maxima over them.

use cubecl::prelude::*;

/// Threads of a plane, which exchange values without shared memory.
pub const PLANE: usize = 32;
/// Threads of a block that takes several rows at once.
const SHARED_BLOCK: usize = 128;
/// The most threads that share a row.
const MOST_THREADS: usize = 512;
/// Vectors that a thread of a loop over a row loads before it uses the first.
pub const BATCH: usize = 4;

/// How a kernel covers rows: a part of a plane for each row, or a block of planes for each.
pub struct Rows {
    /// Threads that share a row: a power of two.
    pub threads: usize,
    /// Rows that a block takes at once.
    pub per_block: usize,
}

impl Rows {
    /// Rows of `vectors` vectors, about `per_thread` of them for a thread.
    pub fn of(vectors: usize, per_thread: usize) -> Self {
        let threads = vectors.div_ceil(per_thread).next_power_of_two().min(MOST_THREADS);
        Self { threads, per_block: if threads <= PLANE { SHARED_BLOCK / threads } else { 1 } }
    }

    pub fn dim(&self) -> CubeDim {
        CubeDim::new_1d((self.threads * self.per_block) as u32)
    }

    /// As many blocks as `rows` rows need.
    pub fn blocks(&self, rows: usize) -> usize {
        rows.div_ceil(self.per_block)
    }

    pub fn count(&self, rows: usize) -> CubeCount {
        CubeCount::Static(self.blocks(rows) as u32, 1, 1)
    }
}

/// Planes that share a row, at least one.
fn planes(threads: usize) -> usize {
    threads.div_ceil(PLANE)
}

/// The first row of this thread.
#[cube]
pub fn own_row(#[comptime] threads: usize) -> usize {
    if comptime!(threads <= PLANE) {
        (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize / threads
    } else {
        CUBE_POS_X as usize
    }
}

/// This thread's place among those of its row.
#[cube]
pub fn own_lane(#[comptime] threads: usize) -> usize {
    UNIT_POS_X as usize % threads
}

/// Memory through which the planes of a row exchange `values` values.
#[cube]
pub fn scratch(#[comptime] threads: usize, #[comptime] values: usize) -> Shared<[f32]> {
    Shared::<[f32]>::new_slice(comptime!(planes(threads) * values))
}

/// Σ value over the threads of a row that lie in this plane.
#[cube]
fn plane_part_sum(value: f32, #[comptime] threads: usize) -> f32 {
    let mut total = value;
    #[unroll]
    for step in 0..comptime!(threads.min(PLANE).ilog2()) {
        total += plane_shuffle_xor(total, comptime!(1u32 << step));
    }
    total
}

/// Σ value over the threads of a row; every thread of the block calls it when several planes
/// share the row.
#[cube]
pub fn row_sum(value: f32, scratch: &mut Shared<[f32]>, #[comptime] threads: usize) -> f32 {
    let mut total = plane_part_sum(value, threads);
    if comptime!(threads > PLANE) {
        // Other threads may still read the values of the previous reduction.
        sync_cube();
        if UNIT_POS_PLANE == 0 {
            scratch[PLANE_POS as usize] = total;
        }
        sync_cube();
        total = scratch[0];
        #[unroll]
        for plane in 1..comptime!(planes(threads)) {
            total += scratch[plane];
        }
    }
    total
}

/// Two sums at once, as [`row_sum`].
#[cube]
pub fn row_sums(a: f32, b: f32, scratch: &mut Shared<[f32]>, #[comptime] threads: usize) -> (f32, f32) {
    let mut first = plane_part_sum(a, threads);
    let mut second = plane_part_sum(b, threads);
    if comptime!(threads > PLANE) {
        let count = comptime!(planes(threads));
        sync_cube();
        if UNIT_POS_PLANE == 0 {
            scratch[PLANE_POS as usize] = first;
            scratch[PLANE_POS as usize + count] = second;
        }
        sync_cube();
        first = scratch[0];
        second = scratch[count];
        #[unroll]
        for plane in 1..count {
            first += scratch[plane];
            second += scratch[count + plane];
        }
    }
    (first, second)
}

/// max value over the threads of a row, as [`row_sum`].
#[cube]
pub fn row_max(value: f32, scratch: &mut Shared<[f32]>, #[comptime] threads: usize) -> f32 {
    let mut top = value;
    #[unroll]
    for step in 0..comptime!(threads.min(PLANE).ilog2()) {
        top = max(top, plane_shuffle_xor(top, comptime!(1u32 << step)));
    }
    if comptime!(threads > PLANE) {
        sync_cube();
        if UNIT_POS_PLANE == 0 {
            scratch[PLANE_POS as usize] = top;
        }
        sync_cube();
        top = scratch[0];
        #[unroll]
        for plane in 1..comptime!(planes(threads)) {
            top = max(top, scratch[plane]);
        }
    }
    top
}

/// Below every score: what a hidden key scores, and the maximum of nothing. Finite, so that the
/// difference of two is not NaN.
pub const HIDDEN: f32 = -1e30;

/// The maximum of `maximum` and of a batch of vectors.
#[cube]
pub fn batch_max<N: Size>(values: &Array<Vector<f32, N>>, maximum: f32) -> f32 {
    let mut top = maximum;
    #[unroll]
    for item in 0..BATCH {
        #[unroll]
        for k in 0..N::value() {
            top = max(top, values[item].extract(k));
        }
    }
    top
}
