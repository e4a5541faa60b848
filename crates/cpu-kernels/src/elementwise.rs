//! Operators that compute each number from those in the same place: sums, GELU and SwiGLU's gate.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::CHUNK;
use crate::math::{exp, sigmoid};
use crate::simd::{multiply_add, vectorised};

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

/// √(2/π) and the factor of x³ of GELU's tanh formula.
const SLOPE: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// 2u of u = √(2/π) (x + 0.044715 x³).
#[inline(always)]
fn twice_inner<const FMA: bool>(x: f32) -> f32 {
    2.0 * SLOPE * x * multiply_add::<FMA>(CUBIC * x, x, 1.0)
}

/// GELU by the tanh formula: x (1 + tanh u) / 2 = x σ(2u).
pub fn gelu(x: &[f32], y: &mut [MaybeUninit<f32>]) {
    vectorised! {
        fn gelu[FMA](x: &[f32], y: &mut [MaybeUninit<f32>]) {
            for (x, y) in x.iter().zip(y) {
                y.write(x * sigmoid::<FMA>(twice_inner::<FMA>(*x)));
            }
        }
    }
    assert_eq!(x.len(), y.len());
    x.par_chunks(CHUNK).zip(y.par_chunks_mut(CHUNK)).for_each(|(x, y)| gelu(x, y));
}

/// From the gradient g of the result that of x, in the place of g: g (σ + x σ (1 − σ) · 2 du/dx).
pub fn gelu_backward(x: &[f32], g: &mut [f32]) {
    vectorised! {
        fn backward[FMA](x: &[f32], g: &mut [f32]) {
            for (x, g) in x.iter().zip(g) {
                let e = exp::<FMA>(-twice_inner::<FMA>(*x));
                let sigma = 1.0 / (1.0 + e);
                let slope = 2.0 * SLOPE * multiply_add::<FMA>(3.0 * CUBIC * x, *x, 1.0);
                *g *= sigma * multiply_add::<FMA>(*x * (1.0 - sigma), slope, 1.0);
            }
        }
    }
    assert_eq!(x.len(), g.len());
    x.par_chunks(CHUNK).zip(g.par_chunks_mut(CHUNK)).for_each(|(x, g)| backward(x, g));
}

/// SiLU(a) ⊙ b in the place of a.
pub fn gate(a: &mut [f32], b: &[f32]) {
    vectorised! {
        fn gate[FMA](a: &mut [f32], b: &[f32]) {
            for (a, b) in a.iter_mut().zip(b) {
                *a = *a * sigmoid::<FMA>(*a) * b;
            }
        }
    }
    assert_eq!(a.len(), b.len());
    a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK)).for_each(|(a, b)| gate(a, b));
}

/// s = SiLU(a) and h = s ⊙ b.
pub fn silu_and_gate(a: &[f32], b: &[f32], s: &mut [MaybeUninit<f32>], h: &mut [MaybeUninit<f32>]) {
    vectorised! {
        fn both[FMA](a: &[f32], b: &[f32], s: &mut [MaybeUninit<f32>], h: &mut [MaybeUninit<f32>]) {
            for (((a, b), s), h) in a.iter().zip(b).zip(s).zip(h) {
                let silu = a * sigmoid::<FMA>(*a);
                s.write(silu);
                h.write(silu * b);
            }
        }
    }
    assert!(a.len() == b.len() && a.len() == s.len() && a.len() == h.len());
    let inputs = a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK));
    let outputs = s.par_chunks_mut(CHUNK).zip(h.par_chunks_mut(CHUNK));
    inputs.zip(outputs).for_each(|((a, b), (s, h))| both(a, b, s, h));
}

/// From dh, the gradient of h = SiLU(a) ⊙ b: da in the place of a, db in that of b, and h in that of dh.
pub fn gate_backward(a: &mut [f32], b: &mut [f32], dh: &mut [f32]) {
    vectorised! {
        fn backward[FMA](a: &mut [f32], b: &mut [f32], dh: &mut [f32]) {
            for ((a, b), dh) in a.iter_mut().zip(b).zip(dh) {
                let (x, y, g) = (*a, *b, *dh);
                let sigma = sigmoid::<FMA>(x);
                let s = x * sigma;
                *a = g * y * multiply_add::<FMA>(s, 1.0 - sigma, sigma);
                *b = g * s;
                *dh = s * y;
            }
        }
    }
    assert!(a.len() == b.len() && a.len() == dh.len());
    let parts = a.par_chunks_mut(CHUNK).zip(b.par_chunks_mut(CHUNK)).zip(dh.par_chunks_mut(CHUNK));
    parts.for_each(|((a, b), dh)| backward(a, b, dh));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filled;

    fn inputs() -> Vec<f32> {
        (0..20_000).map(|i| (i as f32 - 10_000.0) / 700.0).collect()
    }

    fn tanh_gelu(x: f64) -> f64 {
        x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
    }

    #[test]
    fn gelu_and_its_slope_equal_the_formula_in_f64() {
        let x = inputs();
        // SAFETY: every element is written.
        let y = unsafe { filled(x.len(), |y| gelu(&x, y)) };
        let mut g = vec![2.0; x.len()];
        gelu_backward(&x, &mut g);
        for ((x, y), g) in x.iter().zip(y).zip(g) {
            let x = f64::from(*x);
            let slope = (tanh_gelu(x + 1e-5) - tanh_gelu(x - 1e-5)) / 2e-5;
            assert!((f64::from(y) - tanh_gelu(x)).abs() < 1e-6 * x.abs().max(1.0), "{x}: {y}");
            assert!((f64::from(g) - 2.0 * slope).abs() < 4e-6, "{x}: {g} {slope}");
        }
    }

    #[test]
    fn the_gate_and_its_gradients_equal_the_formula_in_f64() {
        let (a, n) = (inputs(), inputs().len());
        let b: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
        let (mut h, mut second) = (a.clone(), Vec::new());
        gate(&mut h, &b);
        // SAFETY: every element is written.
        let s = unsafe { filled(n, |s| second = filled(n, |h| silu_and_gate(&a, &b, s, h))) };
        let (mut da, mut db, mut dh) = (a.clone(), b.clone(), vec![0.5; n]);
        gate_backward(&mut da, &mut db, &mut dh);
        let near =
            |ours: f32, exact: f64| assert!((f64::from(ours) - exact).abs() < 1e-6 * exact.abs().max(1.0));
        for i in 0..n {
            let (x, y) = (f64::from(a[i]), f64::from(b[i]));
            let sigma = 1.0 / (1.0 + (-x).exp());
            near(s[i], x * sigma);
            for h in [h[i], second[i], dh[i]] {
                near(h, x * sigma * y);
            }
            near(da[i], 0.5 * y * sigma * (1.0 + x * (1.0 - sigma)));
            near(db[i], 0.5 * x * sigma);
        }
    }
}
