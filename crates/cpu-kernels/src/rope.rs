//! Rotary positions: of each head's numbers, i and i + half form a pair that is turned.

use rayon::prelude::*;

use crate::simd::vectorised;

/// Turns each row of x, in its place, by the angles of its row's position: `cosine` and `sine` have `half` numbers for
/// each position; `sign` is 1, or -1 to turn back.
pub fn turn(
    x: &mut [f32],
    columns: usize,
    cosine: &[f32],
    sine: &[f32],
    half: usize,
    positions: &[usize],
    sign: f32,
) {
    vectorised! {
        fn row[FMA](x: &mut [f32], cosine: &[f32], sine: &[f32], sign: f32) {
            for head in x.chunks_exact_mut(2 * cosine.len()) {
                let (first, second) = head.split_at_mut(cosine.len());
                for ((a, b), (cosine, sine)) in first.iter_mut().zip(second).zip(cosine.iter().zip(sine)) {
                    let (x, y, sine) = (*a, *b, sine * sign);
                    *a = x * cosine - y * sine;
                    *b = y * cosine + x * sine;
                }
            }
        }
    }
    assert!(x.len() == positions.len() * columns && columns.is_multiple_of(2 * half));
    let rows = (8192 / columns).max(1);
    x.par_chunks_mut(rows * columns).zip(positions.par_chunks(rows)).for_each(|(x, positions)| {
        for (x, position) in x.chunks_exact_mut(columns).zip(positions) {
            let angles = position * half..(position + 1) * half;
            row(x, &cosine[angles.clone()], &sine[angles], sign);
        }
    });
}
