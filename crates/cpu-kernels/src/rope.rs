//! Rotary positions: of each head's first numbers, i and i + half, or 2i and 2i + 1, form a pair that is turned.

use rayon::prelude::*;

use crate::simd::vectorised;

/// Which numbers of each head are turned.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// Numbers of a head, and the pairs among its first ones.
    pub head: usize,
    pub half: usize,
    /// Whether the numbers of a pair are neighbours.
    pub neighbours: bool,
}

/// Turns each row of x, in its place, by the angles of its row's position: `cosine` and `sine` have `pairs.half` numbers
/// for each position; `sign` is 1, or -1 to turn back.
pub fn turn(
    x: &mut [f32],
    columns: usize,
    [cosine, sine]: [&[f32]; 2],
    pairs: Pairs,
    positions: &[usize],
    sign: f32,
) {
    vectorised! {
        fn row[FMA](x: &mut [f32], head: usize, cosine: &[f32], sine: &[f32], sign: f32) {
            for head in x.chunks_exact_mut(head) {
                let (first, second) = head[..2 * cosine.len()].split_at_mut(cosine.len());
                for ((a, b), (cosine, sine)) in first.iter_mut().zip(second).zip(cosine.iter().zip(sine)) {
                    let (x, y, sine) = (*a, *b, sine * sign);
                    *a = x * cosine - y * sine;
                    *b = y * cosine + x * sine;
                }
            }
        }
    }
    vectorised! {
        fn row_of_neighbours[FMA](x: &mut [f32], head: usize, cosine: &[f32], sine: &[f32], sign: f32) {
            for head in x.chunks_exact_mut(head) {
                let pairs = head[..2 * cosine.len()].chunks_exact_mut(2);
                for (pair, (cosine, sine)) in pairs.zip(cosine.iter().zip(sine)) {
                    let (x, y, sine) = (pair[0], pair[1], sine * sign);
                    pair[0] = x * cosine - y * sine;
                    pair[1] = y * cosine + x * sine;
                }
            }
        }
    }
    let Pairs { head, half, neighbours } = pairs;
    assert!(x.len() == positions.len() * columns && columns.is_multiple_of(head) && 2 * half <= head);
    let rows = (8192 / columns).max(1);
    x.par_chunks_mut(rows * columns).zip(positions.par_chunks(rows)).for_each(|(x, positions)| {
        for (x, position) in x.chunks_exact_mut(columns).zip(positions) {
            let angles = position * half..(position + 1) * half;
            let (cosine, sine) = (&cosine[angles.clone()], &sine[angles]);
            match neighbours {
                true => row_of_neighbours(x, head, cosine, sine, sign),
                false => row(x, head, cosine, sine, sign),
            }
        }
    });
}
