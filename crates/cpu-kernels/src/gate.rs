//! The gate of a gated feed-forward network: h = f(a) ⊙ b with an [`Activation`] f.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::CHUNK;
use crate::activation::{Activation, Formula, by_formula};
use crate::simd::vectorised;

/// f(a) ⊙ b in the place of a.
pub fn gate(activation: Activation, a: &mut [f32], b: &[f32]) {
    vectorised! {
        fn gate[FMA, F: Formula](a: &mut [f32], b: &[f32]) {
            for (a, b) in a.iter_mut().zip(b) {
                *a = F::value::<FMA>(*a) * b;
            }
        }
    }
    assert_eq!(a.len(), b.len());
    let parts = a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK));
    parts.for_each(|(a, b)| by_formula!(activation, gate(a, b)));
}

/// s = f(a) and h = s ⊙ b.
pub fn activate_and_gate(
    activation: Activation,
    [a, b]: [&[f32]; 2],
    s: &mut [MaybeUninit<f32>],
    h: &mut [MaybeUninit<f32>],
) {
    vectorised! {
        fn both[FMA, F: Formula](a: &[f32], b: &[f32], s: &mut [MaybeUninit<f32>], h: &mut [MaybeUninit<f32>]) {
            for (((a, b), s), h) in a.iter().zip(b).zip(s).zip(h) {
                let value = F::value::<FMA>(*a);
                s.write(value);
                h.write(value * b);
            }
        }
    }
    assert!(a.len() == b.len() && a.len() == s.len() && a.len() == h.len());
    let inputs = a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK));
    let outputs = s.par_chunks_mut(CHUNK).zip(h.par_chunks_mut(CHUNK));
    inputs.zip(outputs).for_each(|((a, b), (s, h))| by_formula!(activation, both(a, b, s, h)));
}

/// From dh, the gradient of h = f(a) ⊙ b: da in the place of a, db in that of b, and h in that of dh.
pub fn gate_backward(activation: Activation, a: &mut [f32], b: &mut [f32], dh: &mut [f32]) {
    vectorised! {
        fn backward[FMA, F: Formula](a: &mut [f32], b: &mut [f32], dh: &mut [f32]) {
            for ((a, b), dh) in a.iter_mut().zip(b).zip(dh) {
                let (y, g) = (*b, *dh);
                let (s, slope) = F::with_slope::<FMA>(*a);
                *a = g * y * slope;
                *b = g * s;
                *dh = s * y;
            }
        }
    }
    assert!(a.len() == b.len() && a.len() == dh.len());
    let parts = a.par_chunks_mut(CHUNK).zip(b.par_chunks_mut(CHUNK)).zip(dh.par_chunks_mut(CHUNK));
    parts.for_each(|((a, b), dh)| by_formula!(activation, backward(a, b, dh)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::tests::{exact, inputs};
    use crate::filled;

    #[test]
    fn the_gate_and_its_gradients_equal_the_formula_in_f64() {
        let (a, n) = (inputs(), inputs().len());
        let b: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
        for activation in Activation::ALL {
            let (mut h, mut second) = (a.clone(), Vec::new());
            gate(activation, &mut h, &b);
            // SAFETY: every element is written.
            let s = unsafe {
                filled(n, |s| second = filled(n, |h| activate_and_gate(activation, [&a, &b], s, h)))
            };
            let (mut da, mut db, mut dh) = (a.clone(), b.clone(), vec![0.5; n]);
            gate_backward(activation, &mut da, &mut db, &mut dh);
            for i in 0..n {
                let (x, y) = (f64::from(a[i]), f64::from(b[i]));
                let (value, slope) = exact(activation, x);
                let near = |ours: f32, exact: f64| {
                    assert!(
                        (f64::from(ours) - exact).abs() < 1e-6 * x.abs().max(1.0),
                        "{activation:?} {x}: {ours} {exact}"
                    );
                };
                near(s[i], value);
                for h in [h[i], second[i], dh[i]] {
                    near(h, value * y);
                }
                near(da[i], 0.5 * y * slope);
                near(db[i], 0.5 * value);
            }
        }
    }
}
