//! Cross-entropy over rows of logits.

use rayon::prelude::*;

use crate::math::exp;
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

/// (exp(logits − lse) − onehot) · factor in the place of the logits; 0 in rows whose label is negative.
pub fn gradient(logits: &mut [f32], columns: usize, labels: &[i64], first: usize, lse: &[f32], factor: f32) {
    vectorised! {
        fn row[FMA](logits: &mut [f32], lse: f32, factor: f32) {
            logits.iter_mut().for_each(|x| *x = exp::<FMA>(*x - lse) * factor);
        }
    }
    assert!(logits.len() == labels.len() * columns && labels.len() == lse.len());
    logits.par_chunks_mut(columns).zip(labels).zip(lse).for_each(|((logits, label), lse)| {
        if *label < 0 {
            return logits.fill(0.0);
        }
        row(logits, *lse, factor);
        if let Some(target) = place(*label, first).and_then(|place| logits.get_mut(place)) {
            *target -= factor;
        }
    });
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
        gradient(&mut ours, columns, &labels, 0, &lse, 0.5);
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
}
