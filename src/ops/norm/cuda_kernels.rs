//! The kernels of RMSNorm and LayerNorm. A row's elements stay in the registers of the threads
//! that share it, so each tensor is read once.

use cubecl::prelude::*;

use crate::ops::kernels::row::{own_lane, own_row, row_sum, row_sums, scratch};

/// y = (x − mean) · rstd ⊙ weight + bias, or y = x · rstd ⊙ weight when there is no bias.
/// A row has `columns` vectors, a thread at most `items` of them.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub fn normalize<X: Float, W: Float, Y: Float, N: Size>(
    x: &[Vector<X, N>],
    weight: &[Vector<W, N>],
    bias: ComptimeOption<&[Vector<W, N>]>,
    y: &mut [Vector<Y, N>],
    mean: ComptimeOption<&mut [f32]>,
    rstd: &mut [f32],
    width: f32,
    eps: f32,
    #[comptime] columns: usize,
    #[comptime] items: usize,
    #[comptime] threads: usize,
    #[comptime] plus_one: bool,
    #[define(X, W, Y)] _types: [ElemType; 3],
) {
    let mut scratch = scratch(threads, 2usize);
    let row = own_row(threads);
    let lane = own_lane(threads);
    if row < rstd.len() {
        let base = row * columns;
        let mut values = Array::<Vector<f32, N>>::new(items);
        #[unroll]
        for item in 0..items {
            let column = lane + item * threads;
            let mut value = Vector::<f32, N>::new(0.0f32);
            if column < columns {
                value = Vector::cast_from(x[base + column]);
            }
            values[item] = value;
        }
        #[comptime]
        if let ComptimeOption::Some(mean) = mean {
            let mut sum = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for item in 0..items {
                sum += values[item];
            }
            let center = row_sum(sum.vector_sum(), &mut scratch, threads) / width;
            #[unroll]
            for item in 0..items {
                if lane + item * threads < columns {
                    values[item] -= Vector::new(center);
                }
            }
            if lane == 0 {
                mean[row] = center;
            }
        }
        let mut squares = Vector::<f32, N>::new(0.0f32);
        #[unroll]
        for item in 0..items {
            squares += values[item] * values[item];
        }
        let variance = row_sum(squares.vector_sum(), &mut scratch, threads) / width;
        let scale = 1.0f32 / (variance + eps).sqrt();
        if lane == 0 {
            rstd[row] = scale;
        }
        #[unroll]
        for item in 0..items {
            let column = lane + item * threads;
            if column < columns {
                let scaled = values[item] * Vector::new(scale) * factor::<W, N>(weight[column], plus_one);
                #[comptime]
                let shift = match &bias {
                    ComptimeOption::Some(bias) => Vector::<f32, N>::cast_from(bias[column]),
                    ComptimeOption::None => Vector::<f32, N>::new(0.0f32),
                };
                y[base + column] = Vector::cast_from(scaled + shift);
            }
        }
    }
}

/// What x̂ is multiplied by.
#[cube]
fn factor<W: Float, N: Size>(weight: Vector<W, N>, #[comptime] plus_one: bool) -> Vector<f32, N> {
    let weight = Vector::<f32, N>::cast_from(weight);
    if comptime!(plus_one) { weight + Vector::new(1.0f32) } else { weight }
}

/// This thread's vectors of a row, where there is one.
#[cube]
fn load_row<F: Float, N: Size>(
    from: &[Vector<F, N>],
    into: &mut Array<Vector<F, N>>,
    row: usize,
    rows: usize,
    #[comptime] columns: usize,
    #[comptime] items: usize,
    #[comptime] threads: usize,
) {
    #[unroll]
    for item in 0..items {
        let column = own_lane(threads) + item * threads;
        if row < rows && column < columns {
            into[item] = from[row * columns + column];
        }
    }
}

/// dx of [`normalize`], and the sums over this block's rows of dweight and dbias, one row of
/// `partial_weight` and `partial_bias` for each block; `earlier` is added to dx. With x̂ = (x − mean) · rstd and
/// h = g ⊙ weight: dx = rstd · (h − mean(h) − x̂ · mean(h ⊙ x̂)), dweight = Σ g ⊙ x̂, dbias = Σ g;
/// without a mean x̂ = x · rstd and the term mean(h) is absent.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub fn normalize_backward<X: Float, W: Float, G: Float, N: Size>(
    x: &[Vector<X, N>],
    weight: &[Vector<W, N>],
    mean: ComptimeOption<&[f32]>,
    rstd: &[f32],
    g: &[Vector<G, N>],
    earlier: ComptimeOption<&[Vector<X, N>]>,
    dx: &mut [Vector<X, N>],
    partial_weight: &mut [Vector<f32, N>],
    partial_bias: ComptimeOption<&mut [Vector<f32, N>]>,
    width: f32,
    #[comptime] columns: usize,
    #[comptime] items: usize,
    #[comptime] threads: usize,
    #[comptime] per_block: usize,
    #[comptime] centered: bool,
    #[comptime] plus_one: bool,
    #[define(X, W, G)] _types: [ElemType; 3],
) {
    let mut scratch = scratch(threads, 2usize);
    let lane = own_lane(threads);
    let mut dweight = Array::<Vector<f32, N>>::new(items);
    let mut dbias = Array::<Vector<f32, N>>::new(items);
    #[unroll]
    for item in 0..items {
        dweight[item] = Vector::new(0.0f32);
        dbias[item] = Vector::new(0.0f32);
    }
    let mut row = own_row(threads);
    let mut next_x = Array::<Vector<X, N>>::new(items);
    let mut next_g = Array::<Vector<G, N>>::new(items);
    load_row::<X, N>(x, &mut next_x, row, rstd.len(), columns, items, threads);
    load_row::<G, N>(g, &mut next_g, row, rstd.len(), columns, items, threads);
    while row < rstd.len() {
        let base = row * columns;
        let scale = rstd[row];
        #[comptime]
        let center = match &mean {
            ComptimeOption::Some(mean) => mean[row],
            ComptimeOption::None => 0.0f32.runtime(),
        };
        let mut normal = Array::<Vector<f32, N>>::new(items);
        let mut upstream = Array::<Vector<f32, N>>::new(items);
        let mut along = Vector::<f32, N>::new(0.0f32);
        let mut level = Vector::<f32, N>::new(0.0f32);
        #[unroll]
        for item in 0..items {
            let column = lane + item * threads;
            let mut value = Vector::<f32, N>::new(0.0f32);
            let mut gradient = Vector::<f32, N>::new(0.0f32);
            let mut weighted = Vector::<f32, N>::new(0.0f32);
            if column < columns {
                value = (Vector::cast_from(next_x[item]) - Vector::new(center)) * Vector::new(scale);
                gradient = Vector::cast_from(next_g[item]);
                weighted = gradient * factor::<W, N>(weight[column], plus_one);
            }
            dweight[item] += gradient * value;
            if comptime!(centered) {
                dbias[item] += gradient;
            }
            along += weighted * value;
            level += weighted;
            normal[item] = value;
            upstream[item] = weighted;
        }
        let mut before = Array::<Vector<X, N>>::new(items);
        #[comptime]
        if let ComptimeOption::Some(earlier) = &earlier {
            #[unroll]
            for item in 0..items {
                let column = lane + item * threads;
                if column < columns {
                    before[item] = earlier[base + column];
                }
            }
        }
        // The next row is loaded while this one waits for its sums.
        row += CUBE_COUNT_X as usize * per_block;
        load_row::<X, N>(x, &mut next_x, row, rstd.len(), columns, items, threads);
        load_row::<G, N>(g, &mut next_g, row, rstd.len(), columns, items, threads);
        let mut slope = along.vector_sum();
        let mut offset = 0.0f32;
        if comptime!(centered) {
            let (first, second) = row_sums(slope, level.vector_sum(), &mut scratch, threads);
            slope = first;
            offset = second / width;
        } else {
            slope = row_sum(slope, &mut scratch, threads);
        }
        slope /= width;
        #[unroll]
        for item in 0..items {
            let column = lane + item * threads;
            if column < columns {
                let inner = upstream[item] - Vector::new(offset) - normal[item] * Vector::new(slope);
                #[comptime]
                let added = match &earlier {
                    ComptimeOption::Some(_) => Vector::<f32, N>::cast_from(before[item]),
                    ComptimeOption::None => Vector::<f32, N>::new(0.0f32),
                };
                dx[base + column] = Vector::cast_from(added + inner * Vector::new(scale));
            }
        }
    }
    combine::<N>(&dweight, partial_weight, columns, items, threads, per_block);
    #[comptime]
    if let ComptimeOption::Some(partial_bias) = partial_bias {
        combine::<N>(&dbias, partial_bias, columns, items, threads, per_block);
    }
}

/// Writes the sums of a block: the threads' own, or those of its rows added in order.
#[cube]
fn combine<N: Size>(
    sums: &Array<Vector<f32, N>>,
    partial: &mut [Vector<f32, N>],
    #[comptime] columns: usize,
    #[comptime] items: usize,
    #[comptime] threads: usize,
    #[comptime] per_block: usize,
) {
    let lane = own_lane(threads);
    let base = CUBE_POS_X as usize * columns;
    if comptime!(per_block == 1) {
        #[unroll]
        for item in 0..items {
            let column = lane + item * threads;
            if column < columns {
                partial[base + column] = sums[item];
            }
        }
    } else {
        let mut shared = Shared::<[Vector<f32, N>]>::new_slice(comptime!(per_block * columns));
        #[unroll]
        for item in 0..items {
            let column = lane + item * threads;
            if column < columns {
                shared[UNIT_POS_X as usize / threads * columns + column] = sums[item];
            }
        }
        sync_cube();
        let mut column = UNIT_POS_X as usize;
        while column < columns {
            let mut total = shared[column];
            #[unroll]
            for other in 1..per_block {
                total += shared[other * columns + column];
            }
            partial[base + column] = total;
            column += comptime!(threads * per_block);
        }
    }
}
