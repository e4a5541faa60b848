//! [`collapse`]: when a gradient scaler can do no more.

use super::ScalerConfig;
use crate::words::text::significant;

/// So many steps skipped in a row, at a scale that becomes no smaller, end a cell.
const PATIENCE: usize = 20;

/// Why training cannot go on, once the last [`PATIENCE`] steps were skipped at the smallest scale. `reports`: what
/// [`GradScaler::update`](super::GradScaler::update) returned for each step.
pub fn collapse(config: &ScalerConfig, reports: &[Vec<f32>]) -> Option<String> {
    let smallest = config.smallest_scale();
    let last = &reports[reports.len().checked_sub(PATIENCE)?..];
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
        reports.len() - PATIENCE + 1,
        reports.len(),
        significant(smallest)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{DynamicGradScaler, StaticGradScaler};
    use super::*;

    #[test]
    fn a_collapse_is_many_skips_in_a_row_where_the_scale_cannot_fall() {
        let fixed = ScalerConfig::Static(StaticGradScaler { scale: 1024.0 });
        let mut reports = vec![vec![1.0, 1024.0]];
        reports.extend(vec![vec![0.0, 1024.0]; PATIENCE - 1]);
        assert_eq!(collapse(&fixed, &reports), None);
        reports.push(vec![0.0, 1024.0]);
        let reason = collapse(&fixed, &reports).unwrap();
        assert!(reason.starts_with("steps 2 to 21 were all skipped"), "{reason}");
        assert!(reason.contains("smaller precision.scaler.scale"), "{reason}");
        // A dynamic scale of that size has some way to go.
        assert_eq!(collapse(&ScalerConfig::Dynamic(DynamicGradScaler::SECTION.defaults()), &reports), None);
    }
}
