//! One step of gradient descent.

use crate::simd::vectorised;

/// What the step multiplies by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    pub lr: f32,
    pub momentum: f32,
    pub weight_decay: f32,
    /// What every gradient is multiplied by.
    pub clip: f32,
}

vectorised! {
    /// Parameters p after the step along clip · g + weight_decay · p, in their place, on this thread.
    pub fn descend[FMA](g: &[f32], p: &mut [f32], step: SgdStep) {
        let SgdStep { lr, weight_decay, clip, .. } = step;
        for (g, p) in g.iter().zip(p) {
            *p -= lr * (g * clip + weight_decay * *p);
        }
    }
}

vectorised! {
    /// The same along the moments m ← momentum · m + gradient.
    pub fn roll[FMA](g: &[f32], p: &mut [f32], m: &mut [f32], step: SgdStep) {
        let SgdStep { lr, momentum, weight_decay, clip } = step;
        for ((g, p), m) in g.iter().zip(p).zip(m) {
            *m = momentum * *m + (g * clip + weight_decay * *p);
            *p -= lr * *m;
        }
    }
}
