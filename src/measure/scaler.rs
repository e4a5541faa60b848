//! [`ScalerRecord`]: the scale and the skipped steps of a gradient scaler over the steps of a cell.

use serde::{Deserialize, Serialize};

/// Over every step, warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalerRecord {
    /// Steps whose update was skipped, since a gradient was not finite.
    pub skipped: usize,
    /// The scale after the last step.
    pub final_scale: f64,
    pub smallest_scale: f64,
    /// Which steps were skipped, counted from 1.
    pub skipped_steps: Vec<usize>,
    /// The scale after each step.
    pub scales: Vec<f64>,
}

impl ScalerRecord {
    /// From the scale before the first step and what `GradScaler::update` gave of each step: whether its update
    /// was applied (1) or skipped (0), and the scale after it.
    pub fn new(first: f64, stats: &[Vec<f32>]) -> Self {
        let scales: Vec<f64> = stats.iter().map(|step| f64::from(step[1])).collect();
        let skipped_steps: Vec<usize> =
            stats.iter().enumerate().filter(|(_, step)| step[0] == 0.0).map(|(i, _)| i + 1).collect();
        Self {
            skipped: skipped_steps.len(),
            final_scale: scales.last().copied().unwrap_or(first),
            smallest_scale: scales.iter().copied().fold(first, f64::min),
            skipped_steps,
            scales,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_steps_came_to() {
        let record = ScalerRecord::new(8.0, &[vec![1.0, 8.0], vec![0.0, 4.0], vec![1.0, 16.0]]);
        assert_eq!((record.skipped, record.skipped_steps), (1, vec![2]));
        assert_eq!((record.final_scale, record.smallest_scale), (16.0, 4.0));
        assert_eq!(record.scales, [8.0, 4.0, 16.0]);
    }
}
