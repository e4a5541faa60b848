//! One step of AdamW.

use crate::simd::vectorised;

/// What step t = 1, 2, … of AdamW multiplies by, which kernels in C++ read too; where t is not known here, `rate` is
/// lr and `correction` 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdamWStep {
    /// 1 − lr · weight_decay
    pub decay: f32,
    pub beta1: f32,
    pub beta2: f32,
    /// 1 − β₁ and 1 − β₂: of an fp32 β₂ = 0.999 the difference to 1 is wrong in its fifth digit.
    pub rest1: f32,
    pub rest2: f32,
    pub eps: f32,
    /// lr / (1 − β₁ᵗ)
    pub rate: f32,
    /// √(1 − β₂ᵗ)
    pub correction: f32,
}

vectorised! {
    /// Parameters p and moments m and v after the step along clip · g, in their places, on this thread; one division
    /// and one root an element.
    pub fn update[FMA](g: &[f32], p: &mut [f32], m: &mut [f32], v: &mut [f32], step: AdamWStep, clip: f32) {
        one_step(g, p, m, v, step, clip);
    }
}

/// As [`update`], with the vectors of the function around it.
#[inline(always)]
pub(crate) fn one_step(g: &[f32], p: &mut [f32], m: &mut [f32], v: &mut [f32], step: AdamWStep, clip: f32) {
    let AdamWStep { decay, beta1, beta2, rest1, rest2, eps, rate, correction } = step;
    let scale = 1.0 / correction;
    for (((g, p), m), v) in g.iter().zip(p).zip(m).zip(v) {
        let g = g * clip;
        *m = beta1 * *m + rest1 * g;
        *v = beta2 * *v + rest2 * g * g;
        *p = *p * decay - rate * *m / (v.sqrt() * scale + eps);
    }
}
