//! Sums, element by element.

use rayon::prelude::*;

use crate::CHUNK;
use crate::simd::vectorised;

/// x + y in the place of x.
pub fn add(x: &mut [f32], y: &[f32]) {
    vectorised! {
        fn add[FMA](x: &mut [f32], y: &[f32]) {
            x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
        }
    }
    assert_eq!(x.len(), y.len());
    x.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK)).for_each(|(x, y)| add(x, y));
}
