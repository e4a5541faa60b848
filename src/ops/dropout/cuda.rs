//! Dropout by the numbers of Philox4x32-10, four elements a thread.

use burn_cubecl::tensor::CubeTensor;
use cpu_kernels::random::{KEY_STEPS, MULTIPLIERS, ROUNDS};
use cubecl::prelude::*;

use crate::ops::kernels::launch::{Grid, buffer, contiguous, float, like};

const X: u32 = MULTIPLIERS[0];
const Y: u32 = MULTIPLIERS[1];
const KEY_X: u32 = KEY_STEPS[0];
const KEY_Y: u32 = KEY_STEPS[1];

/// y = 0 where the number of the element of x is below the threshold, else x · scale.
#[cube(launch_unchecked)]
fn masked<F: Float>(
    x: &[F],
    y: &mut [F],
    key_x: u32,
    key_y: u32,
    threshold: u32,
    scale: f32,
    #[define(F)] _type: ElemType,
) {
    let first = ABSOLUTE_POS * 4usize;
    if first < y.len() {
        let mut a = ABSOLUTE_POS as u32;
        let mut b = 0u32;
        let mut c = 0u32;
        let mut d = 0u32;
        let mut k = key_x;
        let mut l = key_y;
        for _ in 0..ROUNDS {
            let high_x = u32::mul_hi(a, X);
            let low_x = a * X;
            let high_y = u32::mul_hi(c, Y);
            let low_y = c * Y;
            a = high_y ^ b ^ k;
            b = low_y;
            c = high_x ^ d ^ l;
            d = low_x;
            k += KEY_X;
            l += KEY_Y;
        }
        put::<F>(x, y, first, a < threshold, scale);
        put::<F>(x, y, first + 1usize, b < threshold, scale);
        put::<F>(x, y, first + 2usize, c < threshold, scale);
        put::<F>(x, y, first + 3usize, d < threshold, scale);
    }
}

#[cube]
fn put<F: Float>(x: &[F], y: &mut [F], place: usize, dropped: bool, scale: f32) {
    if place < y.len() {
        let mut value = f32::cast_from(x[place]) * scale;
        if dropped {
            value = 0.0f32;
        }
        y[place] = F::cast_from(value);
    }
}

/// A new tensor of x's shape and type.
pub fn dropout(x: &CubeTensor, key: [u32; 2], threshold: u32, scale: f32) -> CubeTensor {
    let x = contiguous(x);
    let y = like(&x, x.dtype);
    let grid = Grid::of(x.meta.num_elements().div_ceil(4));
    // SAFETY: both buffers hold as many elements, and the kernel checks their end.
    unsafe {
        masked::launch_unchecked(
            &x.client,
            grid.count,
            grid.dim,
            buffer(&x),
            buffer(&y),
            key[0],
            key[1],
            threshold,
            scale,
            float(x.dtype),
        );
    }
    y
}
