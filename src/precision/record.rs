//! [`ScalerRecord`]: what a gradient scaler did over the steps of a cell, and when it has collapsed.

use serde::{Deserialize, Serialize};

use super::ScalerConfig;
use crate::text::significant;

/// So many steps skipped in a row, at a scale that becomes no smaller, end a cell.
const PATIENCE: usize = 20;

/// Of every step, warm-up included.
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
    /// From what [`super::GradScaler::update`] told of each step.
    pub fn new(config: &ScalerConfig, told: &[Vec<f32>]) -> Self {
        let first = config.first_scale();
        let scales: Vec<f64> = told.iter().map(|step| f64::from(step[1])).collect();
        let skipped_steps: Vec<usize> =
            told.iter().enumerate().filter(|(_, step)| step[0] == 0.0).map(|(i, _)| i + 1).collect();
        Self {
            skipped: skipped_steps.len(),
            final_scale: scales.last().copied().unwrap_or(first),
            smallest_scale: scales.iter().copied().fold(first, f64::min),
            skipped_steps,
            scales,
        }
    }
}

/// Why training cannot go on, once the last [`PATIENCE`] steps were skipped at the smallest scale.
pub fn collapse(config: &ScalerConfig, told: &[Vec<f32>]) -> Option<String> {
    let smallest = config.smallest_scale();
    let last = &told[told.len().checked_sub(PATIENCE)?..];
    let lost = |step: &Vec<f32>| step[0] == 0.0 && f64::from(step[1]) <= smallest;
    if !last.iter().all(lost) {
        return None;
    }
    let advice = match config {
        ScalerConfig::Static(_) => {
            "gradients overflow fp16 at this scale: set a smaller precision.scaler.scale, or \
             precision.scaler = { kind = \"dynamic\" }"
        }
        ScalerConfig::Dynamic(_) => {
            "gradients overflow fp16 at any scale: use precision.compute = \"bf16\", a smaller \
             train.optimizer.lr, or precision.autocast = true"
        }
    };
    Some(format!(
        "steps {} to {} were all skipped at a scale of {}; {advice}",
        told.len() - PATIENCE + 1,
        told.len(),
        significant(smallest)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{DynamicGradScaler, StaticGradScaler};
    use super::*;

    #[test]
    fn what_the_steps_came_to() {
        let config = ScalerConfig::Dynamic(DynamicGradScaler { init_scale: 8.0, ..Default::default() });
        let record = ScalerRecord::new(&config, &[vec![1.0, 8.0], vec![0.0, 4.0], vec![1.0, 16.0]]);
        assert_eq!((record.skipped, record.skipped_steps), (1, vec![2]));
        assert_eq!((record.final_scale, record.smallest_scale), (16.0, 4.0));
        assert_eq!(record.scales, [8.0, 4.0, 16.0]);
    }

    #[test]
    fn a_collapse_is_many_skips_in_a_row_where_the_scale_cannot_fall() {
        let fixed = ScalerConfig::Static(StaticGradScaler { scale: 1024.0 });
        let mut told = vec![vec![1.0, 1024.0]];
        told.extend(vec![vec![0.0, 1024.0]; PATIENCE - 1]);
        assert_eq!(collapse(&fixed, &told), None);
        told.push(vec![0.0, 1024.0]);
        let reason = collapse(&fixed, &told).unwrap();
        assert!(reason.starts_with("steps 2 to 21 were all skipped"), "{reason}");
        assert!(reason.contains("smaller precision.scaler.scale"), "{reason}");
        // A dynamic scale of that size has some way to go.
        assert_eq!(collapse(&ScalerConfig::Dynamic(DynamicGradScaler::default()), &told), None);
    }
}
