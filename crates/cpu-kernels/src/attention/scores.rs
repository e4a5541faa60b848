//! [`Scores`]: how scores follow from products of queries and keys, and which keys a query sees.

use std::ops::Range;

use crate::math::{exp, tanh};
use crate::reduce::{largest, sum_of, sum_of_pairs};
use crate::simd::vectorised;

/// The options of attention's scores. By default they are QKᵀ / √head_dim, and a query sees all keys up to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Factor of QKᵀ; `None`: 1 / √head_dim.
    pub scale: Option<f64>,
    /// c of c · tanh(z / c), which a scaled score z becomes (Gemma Team 2024, "Gemma 2"); `None`: it stays z.
    pub soft_cap: Option<f64>,
    /// Keys that a query sees, at least 1: itself and those before it; `None`: all.
    pub window: Option<usize>,
}

impl Scores {
    /// The first position that a query at `position` sees.
    pub fn first_key(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The same scores of sequences with so many keys: a window that is not shorter hides none.
    #[must_use]
    pub fn within(self, keys: usize) -> Self {
        Self { window: self.window.filter(|window| *window < keys), ..self }
    }
}

/// [`Scores`] of heads of one size, in fp32.
#[derive(Clone, Copy)]
pub struct Scaling {
    pub scale: f32,
    pub soft_cap: Option<f32>,
}

/// Numbers for each row of k: a query sees only keys that have its own number.
pub type Segments<'a> = Option<&'a [i64]>;

/// Hides the keys of other segments than the last key's from these scores of the keys from `first` on.
fn hide(z: &mut [f32], segments: Segments<'_>, first: usize) {
    let Some(segments) = segments else { return };
    let segments = &segments[first..][..z.len()];
    let own = segments[z.len() - 1];
    for (z, segment) in z.iter_mut().zip(segments) {
        if *segment != own {
            *z = f32::NEG_INFINITY;
        }
    }
}

/// The keys of a row that its query sees; the others get 0.
pub fn visible(row: &mut [f32], keys: Range<usize>) -> &mut [f32] {
    let (seen, later) = row.split_at_mut(keys.end);
    let (earlier, seen) = seen.split_at_mut(keys.start);
    earlier.fill(0.0);
    later.fill(0.0);
    seen
}

impl Scaling {
    /// P in the place of the products z of a query with the keys from `first` on; log Σ exp of their scores.
    pub fn probabilities(&self, z: &mut [f32], segments: Segments<'_>, first: usize) -> f32 {
        let scale = self.capped(z);
        hide(z, segments, first);
        let (sum, most) = exponentials(z, scale);
        let share = 1.0 / sum;
        z.iter_mut().for_each(|p| *p *= share);
        sum.ln() + most
    }

    /// P in the place of z as [`probabilities`](Self::probabilities), and the gradient of z in that of dp, P's.
    pub fn differentiate(
        &self,
        z: &mut [f32],
        dp: &mut [f32],
        lse: f32,
        segments: Segments<'_>,
        first: usize,
    ) {
        let scale = self.capped(z);
        hide(z, segments, first);
        match self.soft_cap {
            None => differentiate(z, dp, lse, scale),
            Some(cap) => differentiate_capped(z, dp, lse, self.scale, cap),
        }
    }

    /// Puts capped scores in the place of z; the factor that is left to apply.
    fn capped(&self, z: &mut [f32]) -> f32 {
        let Some(cap) = self.soft_cap else { return self.scale };
        cap_softly(z, self.scale / cap, cap);
        1.0
    }
}

vectorised! {
    /// exp(scale · z − most) in the place of z, with most the largest of scale · z; the sum of these, and most.
    fn exponentials[FMA](z: &mut [f32], scale: f32) -> (f32, f32) {
        let most = largest(z) * scale;
        z.iter_mut().for_each(|z| *z = exp::<FMA>(*z * scale - most));
        (sum_of(z, |z| z), most)
    }
}

vectorised! {
    /// P in the place of z and dS in that of dp.
    fn differentiate[FMA](z: &mut [f32], dp: &mut [f32], lse: f32, scale: f32) {
        z.iter_mut().for_each(|z| *z = exp::<FMA>(*z * scale - lse));
        let sum = sum_of_pairs(z, dp, |p, dp| p * dp);
        dp.iter_mut().zip(z).for_each(|(dp, p)| *dp = *p * (*dp - sum) * scale);
    }
}

vectorised! {
    /// cap · tanh(factor · z) in the place of z.
    fn cap_softly[FMA](z: &mut [f32], factor: f32, cap: f32) {
        z.iter_mut().for_each(|z| *z = cap * tanh::<FMA>(*z * factor));
    }
}

vectorised! {
    /// As [`differentiate`] from capped scores z: d tanh(x) = 1 − tanh²(x), with z / cap the tanh.
    fn differentiate_capped[FMA](z: &mut [f32], dp: &mut [f32], lse: f32, scale: f32, cap: f32) {
        let sum = sum_of_pairs(z, dp, |z, dp| exp::<FMA>(z - lse) * dp);
        let inverse = 1.0 / cap;
        dp.iter_mut().zip(z).for_each(|(dp, z)| {
            let p = exp::<FMA>(*z - lse);
            // A hidden key has -inf.
            let t = if *z > -cap { *z * inverse } else { -1.0 };
            *dp = p * (*dp - sum) * scale * (1.0 - t * t);
            *z = p;
        });
    }
}
