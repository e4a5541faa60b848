//! Sums, in an order that the sizes alone decide.

use rayon::prelude::*;

use crate::CHUNK;
use crate::simd::vectorised;

/// Sums side by side: as many numbers as the widest vector has.
const LANES: usize = 16;

/// Σ of what `map` makes of each number, in [`LANES`] sums that are added at the end.
#[inline(always)]
pub fn sum_of(x: &[f32], map: impl Fn(f32) -> f32) -> f32 {
    sum_of_pairs(x, x, |x, _| map(x))
}

/// The same of pairs.
#[inline(always)]
pub fn sum_of_pairs(x: &[f32], y: &[f32], map: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f32 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| map(*x, *y)).sum();
    for (x, y) in xs.zip(ys) {
        for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += map(*x, *y);
        }
    }
    add_lanes(lanes) + rest
}

/// The largest number; a NaN counts as less than any.
#[inline(always)]
pub fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let whole = x.chunks_exact(LANES);
    let rest = whole.remainder();
    for x in whole {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    rest.iter().chain(&lanes).fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a })
}

#[inline(always)]
fn add_lanes(lanes: [f32; LANES]) -> f32 {
    let mut lanes = lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Rows that one thread adds up, of so many: few enough for all threads, and not more sums than 64 are left.
pub(crate) fn rows_at_once(rows: usize) -> usize {
    rows.div_ceil(64).max(32)
}

vectorised! {
    /// Adds row by row to `sums`.
    fn add_rows[FMA](rows: &[f32], sums: &mut [f32]) {
        for row in rows.chunks_exact(sums.len()) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
    }
}

/// The rows of `columns` numbers added up.
pub(crate) fn total(mut rows: Vec<f32>, columns: usize) -> Vec<f32> {
    let (sums, rest) = rows.split_at_mut(columns);
    add_rows(rest, sums);
    rows.truncate(columns);
    rows.shrink_to_fit();
    rows
}

/// The sum of each of the `columns` columns of a matrix.
pub fn column_sums(x: &[f32], columns: usize) -> Vec<f32> {
    let rows = rows_at_once(x.len() / columns);
    let mut parts = vec![0.0; (x.len() / columns).div_ceil(rows).max(1) * columns];
    x.par_chunks(rows * columns).zip(parts.par_chunks_mut(columns)).for_each(|(x, sums)| add_rows(x, sums));
    total(parts, columns)
}

/// Σ x²; not finite where a number is not.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    vectorised! {
        fn squares[FMA](x: &[f32]) -> f32 {
            sum_of(x, |x| x * x)
        }
    }
    let parts: Vec<f32> = x.par_chunks(CHUNK).map(squares).collect();
    parts.iter().map(|x| f64::from(*x)).sum::<f64>() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_those_in_f64() {
        for (rows, columns) in [(1, 1), (33, 7), (4100, 20), (200, 768)] {
            let x: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * 0.731).sin()).collect();
            for (j, sum) in column_sums(&x, columns).into_iter().enumerate() {
                let exact: f64 = (0..rows).map(|i| f64::from(x[i * columns + j])).sum();
                assert!((f64::from(sum) - exact).abs() < 1e-4);
            }
            let exact: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
            assert!((f64::from(sum_of_squares(&x)) - exact).abs() < 1e-6 * exact.max(1.0));
            let exact = x.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(largest(&x), exact);
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        let mut x = vec![1.0; 100];
        x[70] = f32::NAN;
        assert!(sum_of_squares(&x).is_nan());
        x[70] = f32::INFINITY;
        assert_eq!(sum_of_squares(&x), f32::INFINITY);
    }
}
