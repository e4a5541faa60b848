//! Sums over the rows of a matrix, in two kernels: blocks add their rows, and then their sums are added.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{buffer, contiguous, empty, float, sizes, vector};
use super::row::PLANE;

/// Planes of a block, which take rows in turn; a lane has one vector of each.
const PLANES: usize = 8;
/// Rows that a plane takes at least, and blocks that are enough for any device.
const FEWEST_ROWS: usize = 4;
const BLOCKS: usize = 1024;
/// Planes that share a column of the blocks' sums.
const COLUMN_PLANES: usize = 32;

/// How blocks cover a matrix: PLANE vectors of columns and a share of the rows each.
pub struct Cover {
    /// Elements of a vector, and vectors of a row.
    pub vector: usize,
    pub columns: usize,
    blocks: [usize; 2],
}

impl Cover {
    /// For rows of `width` elements, of which `widest` is the largest type.
    pub fn of(rows: usize, width: usize, widest: DType) -> Self {
        let vector = vector(widest, &[width]);
        let columns = width / vector;
        let across = columns.div_ceil(PLANE);
        let down = rows.div_ceil(PLANES * FEWEST_ROWS).min(BLOCKS.div_ceil(across)).max(1);
        Self { vector, columns, blocks: [across, down] }
    }

    pub fn count(&self) -> CubeCount {
        CubeCount::Static(self.blocks[0] as u32, self.blocks[1] as u32, 1)
    }

    pub fn dim() -> CubeDim {
        CubeDim::new_2d(PLANE as u32, PLANES as u32)
    }

    /// The blocks' sums, to be written by [`add_planes`].
    pub fn partial(&self, like: &CubeTensor) -> CubeTensor {
        empty(like, [self.blocks[1], self.columns * self.vector], DType::F32)
    }
}

/// The sums of this block from those of its threads.
#[cube]
pub fn add_planes<N: Size>(sum: Vector<f32, N>, partial: &mut [Vector<f32, N>], columns: usize) {
    let mut shared = Shared::<[Vector<f32, N>]>::new_slice(comptime!(PLANE * PLANES));
    shared[UNIT_POS as usize] = sum;
    sync_cube();
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    if UNIT_POS_Y == 0 && column < columns {
        let mut total = shared[UNIT_POS_X as usize];
        #[unroll]
        for plane in 1..PLANES {
            total += shared[plane * PLANE + UNIT_POS_X as usize];
        }
        partial[CUBE_POS_Y as usize * columns + column] = total;
    }
}

#[cube(launch_unchecked)]
fn add_rows<F: Float, N: Size>(
    x: &[Vector<F, N>],
    partial: &mut [Vector<f32, N>],
    rows: usize,
    columns: usize,
    #[define(F)] _type: ElemType,
) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = Vector::<f32, N>::new(0.0f32);
    if column < columns {
        let mut row = (CUBE_POS_Y * CUBE_DIM_Y + UNIT_POS_Y) as usize;
        while row < rows {
            sum += Vector::cast_from(x[row * columns + column]);
            row += (CUBE_COUNT_Y * CUBE_DIM_Y) as usize;
        }
    }
    add_planes::<N>(sum, partial, columns);
}

/// out[h] = Σ_r partial[r, h], always in the same order; the same of a second pair by the second row of blocks.
#[cube(launch_unchecked)]
fn add_partial<O: Float>(
    partial: &[f32],
    out: &mut [O],
    other_partial: ComptimeOption<&[f32]>,
    other_out: ComptimeOption<&mut [O]>,
    #[define(O)] _type: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(PLANE * COLUMN_PLANES));
    if CUBE_POS_Y == 0 {
        sum_column::<O>(partial, out, &mut shared);
    } else {
        #[comptime]
        if let ComptimeOption::Some(partial) = other_partial {
            #[comptime]
            if let ComptimeOption::Some(out) = other_out {
                sum_column::<O>(partial, out, &mut shared);
            }
        }
    }
}

#[cube]
fn sum_column<O: Float>(partial: &[f32], out: &mut [O], shared: &mut Shared<[f32]>) {
    let columns = out.len();
    let rows = partial.len() / columns;
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = 0.0f32;
    if column < columns {
        let mut row = UNIT_POS_Y as usize;
        while row < rows {
            sum += partial[row * columns + column];
            row += comptime!(COLUMN_PLANES);
        }
    }
    shared[UNIT_POS as usize] = sum;
    sync_cube();
    if UNIT_POS_Y == 0 && column < columns {
        let mut total = shared[UNIT_POS_X as usize];
        #[unroll]
        for plane in 1..COLUMN_PLANES {
            total += shared[plane * PLANE + UNIT_POS_X as usize];
        }
        out[column] = O::cast_from(total);
    }
}

/// Σ over the rows of x [R, C] of any float type → [C], rounded once to `out`.
pub fn column_sums(x: &CubeTensor, out: DType) -> CubeTensor {
    let x = contiguous(x);
    let [rows, width] = sizes(&x, "x");
    let cover = Cover::of(rows, width, x.dtype);
    let partial = cover.partial(&x);
    // SAFETY: the kernel stays within `rows` rows of `columns` vectors and writes one row of sums for each row of
    // blocks.
    unsafe {
        add_rows::launch_unchecked(
            &x.client,
            cover.count(),
            Cover::dim(),
            cover.vector,
            buffer(&x),
            buffer(&partial),
            rows,
            cover.columns,
            float(x.dtype),
        );
    }
    sum_partial(&partial, None, out).0
}

/// [R, C] f32 → [C] as `dtype`, of one tensor or of two, in one kernel.
pub fn sum_partial(
    partial: &CubeTensor,
    other: Option<&CubeTensor>,
    dtype: DType,
) -> (CubeTensor, Option<CubeTensor>) {
    let [_, width] = sizes(partial, "the partial sums");
    let out = empty(partial, [width], dtype);
    let other_out = other.map(|_| empty(partial, [width], dtype));
    // SAFETY: the kernel checks the column and counts the rows from the buffers' lengths.
    unsafe {
        add_partial::launch_unchecked(
            &partial.client,
            CubeCount::Static(width.div_ceil(PLANE) as u32, 1 + u32::from(other.is_some()), 1),
            CubeDim::new_2d(PLANE as u32, COLUMN_PLANES as u32),
            buffer(partial),
            buffer(&out),
            other.map(buffer).into(),
            other_out.as_ref().map(buffer).into(),
            float(dtype),
        );
    }
    (out, other_out)
}
