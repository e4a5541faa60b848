//! [`Samples`]: repeated times of one phase.

use serde::{Deserialize, Serialize};

/// Seconds, one a measured step, and their median, least and largest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub seconds: Vec<f64>,
}

impl Samples {
    /// `None` without a sample.
    pub fn of(seconds: Vec<f64>) -> Option<Self> {
        (!seconds.is_empty()).then(|| Self::new(seconds))
    }

    /// # Panics
    /// Without a sample; a recipe has at least one measured step.
    pub fn new(seconds: Vec<f64>) -> Self {
        let (median, sorted) = (median(&seconds), sorted(&seconds));
        Self { median, min: sorted[0], max: sorted[sorted.len() - 1], seconds }
    }
}

/// The middle one, of an even number the mean of two.
///
/// # Panics
/// Without a value.
pub fn median(values: &[f64]) -> f64 {
    let (sorted, n) = (sorted(values), values.len());
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(Samples::new(vec![3.0, 1.0, 2.0]).median, 2.0);
        let even = Samples::new(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
        assert_eq!(even.seconds, [4.0, 1.0, 2.0, 3.0], "samples keep the order of the steps");
    }
}
