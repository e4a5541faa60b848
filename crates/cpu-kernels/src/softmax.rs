//! Cross-entropy over rows of logits.

use rayon::prelude::*;

use crate::CHUNK;
use crate::math::{exp, tanh};
use crate::reduce::{largest, sum_of};
use crate::simd::vectorised;

/// What is known of a row after some of its logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    pub largest: f32,
    /// Σ exp(logit − largest)
    pub sum: f32,
    /// The label's logit, 0 before it was there.
    pub target: f32,
}

impl Seen {
    pub const NOTHING: Self = Self { largest: f32::MIN, sum: 0.0, target: 0.0 };
}

/// Takes more logits of each row: `columns` of them, the entries from `first` on. A negative label is in no entry.
pub fn observe(logits: &[f32], columns: usize, labels: &[i64], first: usize, seen: &mut [Seen]) {
    vectorised! {
        fn row[FMA](logits: &[f32], seen: &mut Seen) {
            let most = largest(logits);
            // All NaN, or all -inf: the largest so far stays, and a NaN shows in the sum.
            let most = if most > seen.largest { most } else { seen.largest };
            let sum = sum_of(logits, |x| exp::<FMA>(x - most));
            seen.sum = seen.sum * exp::<FMA>(seen.largest - most) + sum;
            seen.largest = most;
        }
    }
    assert!(logits.len() == labels.len() * columns && labels.len() == seen.len());
    logits.par_chunks(columns).zip(labels).zip(seen).for_each(|((logits, label), seen)| {
        row(logits, seen);
        if let Some(target) = place(*label, first).and_then(|place| logits.get(place)) {
            seen.target = *target;
        }
    });
}

/// c · tanh(s x / c) in the place of each x, or s x without a soft cap c.
pub fn logits(x: &mut [f32], scale: f32, soft_cap: Option<f32>) {
    vectorised! {
        fn scaled[FMA](x: &mut [f32], scale: f32) {
            x.iter_mut().for_each(|x| *x *= scale);
        }
    }
    vectorised! {
        fn capped[FMA](x: &mut [f32], scale: f32, cap: f32) {
            x.iter_mut().for_each(|x| *x = cap * tanh::<FMA>(*x * scale / cap));
        }
    }
    x.par_chunks_mut(CHUNK).for_each(|x| match soft_cap {
        None => scaled(x, scale),
        Some(cap) => capped(x, scale, cap),
    });
}

/// (exp(logits − lse) − onehot) · factor in the place of the logits, times 1 − (logit / c)² where they have a soft cap c; 0
/// in rows whose label is negative.
pub fn gradient(
    logits: &mut [f32],
    columns: usize,
    (labels, first): (&[i64], usize),
    lse: &[f32],
    factor: f32,
    soft_cap: Option<f32>,
) {
    vectorised! {
        fn row[FMA](logits: &mut [f32], lse: f32, factor: f32) {
            logits.iter_mut().for_each(|x| *x = exp::<FMA>(*x - lse) * factor);
        }
    }
    vectorised! {
        fn capped_row[FMA](logits: &mut [f32], lse: f32, factor: f32, cap: f32) {
            logits.iter_mut().for_each(|x| *x = exp::<FMA>(*x - lse) * factor * slope(*x, cap));
        }
    }
    assert!(logits.len() == labels.len() * columns && labels.len() == lse.len());
    logits.par_chunks_mut(columns).zip(labels).zip(lse).for_each(|((logits, label), lse)| {
        if *label < 0 {
            return logits.fill(0.0);
        }
        let place = place(*label, first).filter(|place| *place < columns);
        let of_target = match (place, soft_cap) {
            (Some(place), Some(cap)) => factor * slope(logits[place], cap),
            _ => factor,
        };
        match soft_cap {
            None => row(logits, *lse, factor),
            Some(cap) => capped_row(logits, *lse, factor, cap),
        }
        if let Some(place) = place {
            logits[place] -= of_target;
        }
    });
}

/// The derivative of c tanh(x / c), from its value.
#[inline(always)]
fn slope(value: f32, cap: f32) -> f32 {
    let share = value / cap;
    1.0 - share * share
}

fn place(label: i64, first: usize) -> Option<usize> {
    usize::try_from(label).ok()?.checked_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_gradients_equal_the_formula_in_f64() {
        let (rows, columns) = (5, 300);
        let logits: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * 0.73).sin() * 20.0).collect();
        let labels = [0, 299, -100, 150, 7];
        let mut seen = [Seen::NOTHING; 5];
        for (first, end) in [(0, 128), (128, 300)] {
            let part: Vec<f32> = logits.chunks(columns).flat_map(|row| row[first..end].to_vec()).collect();
            observe(&part, end - first, &labels, first, &mut seen);
        }
        let lse: Vec<f32> = seen.iter().map(|seen| seen.sum.ln() + seen.largest).collect();
        let mut ours = logits.clone();
        gradient(&mut ours, columns, (&labels, 0), &lse, 0.5, None);
        for (i, row) in logits.chunks(columns).enumerate() {
            let exact = row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            assert!((f64::from(lse[i]) - exact).abs() < 1e-5);
            let target = usize::try_from(labels[i]).map_or(0.0, |label| row[label]);
            assert_eq!(seen[i].target, target);
            for (j, x) in row.iter().enumerate() {
                let onehot = f64::from(u8::from(labels[i] == j as i64));
                let counts = f64::from(u8::from(labels[i] >= 0));
                let exact = ((f64::from(*x) - exact).exp() - onehot) * 0.5 * counts;
                assert!((f64::from(ours[i * columns + j]) - exact).abs() < 1e-6);
            }
        }
    }

    /// Logits that are c tanh(s z / c) of products z, and the gradient by z, in two chunks.
    #[test]
    fn capped_logits_and_their_gradients_equal_the_formula_in_f64() {
        let (columns, labels, lse) = (53, [52, -100, 0, 25], [31.0, 30.0, 29.5, 30.5]);
        let products: Vec<f32> = (0..4 * columns).map(|i| (i as f32 * 0.731).sin() * 90.0).collect();
        for (scale, cap) in [(1.0, Some(30.0)), (0.3, Some(5.0)), (0.125, None)] {
            let mut ours = products.clone();
            logits(&mut ours, scale, cap);
            let value = |z: f64| match cap.map(f64::from) {
                None => f64::from(scale) * z,
                Some(cap) => cap * (f64::from(scale) * z / cap).tanh(),
            };
            let exact: Vec<f64> = products.iter().map(|z| value(f64::from(*z))).collect();
            for (ours, exact) in ours.iter().zip(&exact) {
                assert!((f64::from(*ours) - exact).abs() < 4e-7 * exact.abs().max(1e-3), "{ours} {exact}");
            }
            for range in [0..20, 20..columns] {
                let mut part: Vec<f32> =
                    ours.chunks(columns).flat_map(|row| row[range.clone()].to_vec()).collect();
                gradient(&mut part, range.len(), (&labels, range.start), &lse, 0.5 * scale, cap);
                for (i, ours) in part.iter().enumerate() {
                    let (row, j) = (i / range.len(), range.start + i % range.len());
                    let z = f64::from(products[row * columns + j]);
                    let slope = (value(z + 1e-5) - value(z - 1e-5)) / 2e-5;
                    let hit = f64::from(u8::from(labels[row] == j as i64));
                    let counts = f64::from(u8::from(labels[row] >= 0));
                    let p = (value(z) - f64::from(lse[row])).exp();
                    let exact = counts * 0.5 * (p - hit) * slope;
                    assert!(
                        (f64::from(*ours) - exact).abs() < 1e-5 * exact.abs().max(1e-2),
                        "{ours} {exact}"
                    );
                }
            }
        }
    }
}
