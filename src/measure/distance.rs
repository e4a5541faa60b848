//! [`FeatureDistance`]: how far training moved the features that the head reads, on held-out inputs.

use serde::{Deserialize, Serialize};

/// Means over the tokens that predict something in the held-out batches, of h before training and h' after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FeatureDistance {
    /// ‖h − h'‖
    pub l2: f64,
    /// 1 − h · h' / ‖h‖ ‖h'‖
    pub cosine: f64,
}

impl FeatureDistance {
    /// Of features [tokens, columns] each, row by row.
    pub fn of(before: &[f32], after: &[f32], columns: usize) -> Self {
        let wide = |x: &f32| f64::from(*x);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| wide(a) * wide(b)).sum::<f64>();
        let (mut l2, mut cosine) = (0.0, 0.0);
        for (h, moved) in before.chunks(columns).zip(after.chunks(columns)) {
            l2 += h.iter().zip(moved).map(|(a, b)| (wide(a) - wide(b)).powi(2)).sum::<f64>().sqrt();
            // Vectors of zeros have no direction.
            let lengths = (dot(h, h) * dot(moved, moved)).sqrt().max(f64::MIN_POSITIVE);
            // Rounding leaves something below 0.
            cosine += (1.0 - dot(h, moved) / lengths).max(0.0);
        }
        let tokens = (before.len() / columns).max(1) as f64;
        Self { l2: l2 / tokens, cosine: cosine / tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        // (3, 4) to (6, 8) is 5 and no turn; (1, 0) to (0, 1) is √2 and a right angle.
        let of = FeatureDistance::of(&[3.0, 4.0, 1.0, 0.0], &[6.0, 8.0, 0.0, 1.0], 2);
        assert!(
            (of.l2 - (5.0 + 2f64.sqrt()) / 2.0).abs() < 1e-12 && (of.cosine - 0.5).abs() < 1e-12,
            "{of:?}"
        );
        assert_eq!(FeatureDistance::of(&[1.0, 2.0], &[1.0, 2.0], 2).l2, 0.0);
    }
}
