//! RMSNorm and LayerNorm of the rows of a matrix, and their backward.
//!
//! With r = 1/√(mean(x²) + ε) of RMSNorm, or of x less its mean in LayerNorm, and x̂ = x·r: y = x̂ ⊙ w (+ b). From the
//! gradient g of y, with ĝ = g ⊙ w and means over a row: dx = r (ĝ − x̂ · mean(ĝ ⊙ x̂)), in LayerNorm also less
//! r · mean(ĝ); dw = Σ_rows g ⊙ x̂ and db = Σ_rows g.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::reduce::{rows_at_once, sum_of, sum_of_pairs, total};
use crate::simd::{multiply_add, vectorised};

/// Rows that one thread normalises at a time: some 16 Ki numbers.
fn rows_of(columns: usize) -> usize {
    (16_384 / columns).max(1)
}

/// RMSNorm of x, of as many columns as `weight` has: y, and r of each row.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, y: &mut [MaybeUninit<f32>], r: &mut [f32]) {
    vectorised! {
        fn normalise[FMA](x: &[f32], weight: &[f32], epsilon: f32, y: &mut [MaybeUninit<f32>], r: &mut [f32]) {
            let columns = weight.len();
            let rows = x.chunks_exact(columns).zip(y.chunks_exact_mut(columns));
            for ((x, y), r) in rows.zip(r) {
                *r = 1.0 / (sum_of(x, |x| x * x) / columns as f32 + epsilon).sqrt();
                for ((x, y), w) in x.iter().zip(y).zip(weight) {
                    y.write(x * *r * w);
                }
            }
        }
    }
    let columns = weight.len();
    assert!(x.len() == y.len() && x.len() == r.len() * columns);
    let rows = rows_of(columns);
    let parts =
        x.par_chunks(rows * columns).zip(y.par_chunks_mut(rows * columns)).zip(r.par_chunks_mut(rows));
    parts.for_each(|((x, y), r)| normalise(x, weight, epsilon, y, r));
}

/// LayerNorm of x, of as many columns as `weight` has: y, and the mean and r of each row.
pub fn layer_norm(
    x: &[f32],
    [weight, bias]: [&[f32]; 2],
    epsilon: f32,
    y: &mut [MaybeUninit<f32>],
    [means, r]: [&mut [f32]; 2],
) {
    vectorised! {
        fn normalise[FMA](
            x: &[f32],
            weight: &[f32],
            bias: &[f32],
            epsilon: f32,
            y: &mut [MaybeUninit<f32>],
            means: &mut [f32],
            r: &mut [f32],
        ) {
            let columns = weight.len();
            let rows = x.chunks_exact(columns).zip(y.chunks_exact_mut(columns));
            for ((x, y), (mean, r)) in rows.zip(means.iter_mut().zip(r)) {
                *mean = sum_of(x, |x| x) / columns as f32;
                let variance = sum_of(x, |x| (x - *mean) * (x - *mean)) / columns as f32;
                *r = 1.0 / (variance + epsilon).sqrt();
                for (((x, y), w), b) in x.iter().zip(y).zip(weight).zip(bias) {
                    y.write(multiply_add::<FMA>((x - *mean) * *r, *w, *b));
                }
            }
        }
    }
    let columns = weight.len();
    assert!(
        x.len() == y.len() && x.len() == r.len() * columns && means.len() == r.len() && bias.len() == columns
    );
    let rows = rows_of(columns);
    let parts = x.par_chunks(rows * columns).zip(y.par_chunks_mut(rows * columns));
    let statistics = means.par_chunks_mut(rows).zip(r.par_chunks_mut(rows));
    parts.zip(statistics).for_each(|((x, y), (means, r))| normalise(x, weight, bias, epsilon, y, means, r));
}

/// dx in the place of g, and dw.
pub fn rms_norm_backward(x: &[f32], weight: &[f32], r: &[f32], g: &mut [f32]) -> Vec<f32> {
    vectorised! {
        fn backward[FMA](x: &[f32], weight: &[f32], r: &[f32], g: &mut [f32], sums: &mut [f32]) {
            let columns = weight.len();
            let rows = x.chunks_exact(columns).zip(g.chunks_exact_mut(columns));
            for ((x, g), r) in rows.zip(r) {
                for ((g, x), (sum, w)) in g.iter_mut().zip(x).zip(sums.iter_mut().zip(weight)) {
                    *sum = multiply_add::<FMA>(*g * r, *x, *sum);
                    *g *= w;
                }
                let share = sum_of_pairs(g, x, |g, x| g * x) * r * r / columns as f32;
                for (g, x) in g.iter_mut().zip(x) {
                    *g = (*g - x * share) * r;
                }
            }
        }
    }
    let columns = weight.len();
    assert!(x.len() == g.len() && x.len() == r.len() * columns);
    let rows = rows_at_once(r.len());
    let mut sums = vec![0.0; r.len().div_ceil(rows).max(1) * columns];
    let parts = x.par_chunks(rows * columns).zip(g.par_chunks_mut(rows * columns));
    let parts = parts.zip(r.par_chunks(rows)).zip(sums.par_chunks_mut(columns));
    parts.for_each(|(((x, g), r), sums)| backward(x, weight, r, g, sums));
    total(sums, columns)
}

/// dx in the place of g, and dw and after it db.
pub fn layer_norm_backward(x: &[f32], weight: &[f32], [means, r]: [&[f32]; 2], g: &mut [f32]) -> Vec<f32> {
    vectorised! {
        fn backward[FMA](x: &[f32], weight: &[f32], means: &[f32], r: &[f32], g: &mut [f32], sums: &mut [f32]) {
            let columns = weight.len();
            let (weights, biases) = sums.split_at_mut(columns);
            let rows = x.chunks_exact(columns).zip(g.chunks_exact_mut(columns));
            for ((x, g), (mean, r)) in rows.zip(means.iter().zip(r)) {
                let sums = weights.iter_mut().zip(biases.iter_mut());
                for (((g, x), w), (dw, db)) in g.iter_mut().zip(x).zip(weight).zip(sums) {
                    *dw = multiply_add::<FMA>(*g * r, x - mean, *dw);
                    *db += *g;
                    *g *= w;
                }
                let gradient = sum_of(g, |g| g) / columns as f32;
                let share = sum_of_pairs(g, x, |g, x| g * (x - mean)) * r * r / columns as f32;
                for (g, x) in g.iter_mut().zip(x) {
                    *g = (*g - gradient - (x - mean) * share) * r;
                }
            }
        }
    }
    let columns = weight.len();
    assert!(x.len() == g.len() && x.len() == r.len() * columns && means.len() == r.len());
    let rows = rows_at_once(r.len());
    let mut sums = vec![0.0; r.len().div_ceil(rows).max(1) * 2 * columns];
    let parts = x.par_chunks(rows * columns).zip(g.par_chunks_mut(rows * columns));
    let statistics = means.par_chunks(rows).zip(r.par_chunks(rows));
    let parts = parts.zip(statistics).zip(sums.par_chunks_mut(2 * columns));
    parts.for_each(|(((x, g), (means, r)), sums)| backward(x, weight, means, r, g, sums));
    total(sums, 2 * columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filled;

    fn numbers(count: usize, seed: f32) -> Vec<f32> {
        (0..count).map(|i| ((i as f32 + seed) * 0.737).sin() * 2.0 + 0.3).collect()
    }

    /// y of a row by the definition in f64, with a bias LayerNorm.
    fn row(x: &[f64], weight: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = bias.map_or(0.0, |_| x.iter().sum::<f64>() / n);
        let r = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
        let y = |(i, x): (usize, &f64)| {
            (x - mean) * r * f64::from(weight[i]) + bias.map_or(0.0, |b| f64::from(b[i]))
        };
        x.iter().enumerate().map(y).collect()
    }

    /// Σ g ⊙ y, differentiated by finite differences in f64, against y, dx, dw and db.
    #[test]
    fn norms_and_their_gradients_equal_the_definition_in_f64() {
        let (rows, columns) = (70, 37);
        let (x, g) = (numbers(rows * columns, 0.0), numbers(rows * columns, 0.4));
        let (weight, bias) = (numbers(columns, 0.1), numbers(columns, 0.2));
        for has_bias in [false, true] {
            let bias = has_bias.then_some(&bias[..]);
            let (mut means, mut r, mut dx) = (vec![0.0; rows], vec![0.0; rows], g.clone());
            // SAFETY: every element is written.
            let y = unsafe {
                filled(x.len(), |y| match bias {
                    None => rms_norm(&x, &weight, 1e-5, y, &mut r),
                    Some(bias) => layer_norm(&x, [&weight, bias], 1e-5, y, [&mut means, &mut r]),
                })
            };
            let sums = match has_bias {
                false => rms_norm_backward(&x, &weight, &r, &mut dx),
                true => layer_norm_backward(&x, &weight, [&means, &r], &mut dx),
            };
            let (ones, zeros) = (vec![1.0; columns], vec![0.0; columns]);
            let (mut dw, mut db) = (vec![0.0; columns], vec![0.0; columns]);
            for i in 0..rows {
                let at = i * columns..(i + 1) * columns;
                let exact: Vec<f64> = x[at.clone()].iter().map(|x| f64::from(*x)).collect();
                let g = &g[at.clone()];
                for (ours, exact) in y[at.clone()].iter().zip(row(&exact, &weight, bias)) {
                    assert!((f64::from(*ours) - exact).abs() < 2e-6 * exact.abs().max(1.0), "{ours} {exact}");
                }
                let normal = row(&exact, &ones, bias.map(|_| &zeros[..]));
                for j in 0..columns {
                    let loss = |by: f64| {
                        let mut moved = exact.clone();
                        moved[j] += by;
                        let y = row(&moved, &weight, bias);
                        y.iter().zip(g).map(|(y, g)| y * f64::from(*g)).sum::<f64>()
                    };
                    let slope = (loss(1e-6) - loss(-1e-6)) / 2e-6;
                    assert!(
                        (f64::from(dx[at.start + j]) - slope).abs() < 1e-5,
                        "{} {slope}",
                        dx[at.start + j]
                    );
                    dw[j] += f64::from(g[j]) * normal[j];
                    db[j] += f64::from(g[j]);
                }
            }
            assert_eq!(sums.len(), columns * (1 + usize::from(has_bias)));
            for (ours, exact) in sums.iter().zip(dw.iter().chain(&db)) {
                assert!((f64::from(*ours) - exact).abs() < 1e-4, "{ours} {exact}");
            }
        }
    }
}
