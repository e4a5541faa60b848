//! [`collapse`]: when a gradient scaler can do no more.

use super::ScalerConfig;
use crate::common::text::scaled;

/// So many steps skipped in a row, at a scale that becomes no smaller, end a cell.
const PATIENCE: usize = 20;

/// Why training cannot go on, once the last [`PATIENCE`] steps were skipped at the smallest scale, or has `ended` without an
/// update. `reports`: what [`GradScaler::update`](super::GradScaler::update) returned for each step.
pub fn collapse(config: &ScalerConfig, reports: &[Vec<f32>], ended: bool) -> Option<String> {
    let smallest = config.smallest_scale();
    let last = if ended { reports } else { &reports[reports.len().checked_sub(PATIENCE)?..] };
    let lost = |step: &Vec<f32>| step[0] == 0.0 && (ended || f64::from(step[1]) <= smallest);
    let scale = f64::from(last.last()?[1]);
    if !last.iter().all(lost) {
        return None;
    }
    let advice = match config {
        ScalerConfig::Static(_) => {
            "gradients overflow fp16 at this scale: set a smaller precision.scaler.scale, or \
             precision.scaler = { kind = \"dynamic\" }"
        }
        ScalerConfig::Dynamic(_) if scale > smallest => {
            "the scale was still falling: set a smaller precision.scaler.init_scale, or more measure.steps"
        }
        ScalerConfig::Dynamic(_) => {
            "gradients overflow fp16 at any scale: use precision.compute = \"bf16\", a smaller \
             train.optimizer.lr, or precision.autocast = true"
        }
    };
    Some(format!(
        "steps {} to {} were all skipped at a scale of {}; {advice}",
        reports.len() - last.len() + 1,
        reports.len(),
        scaled(scale)
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
        assert_eq!(collapse(&fixed, &reports, false), None);
        // One step was an update.
        assert_eq!(collapse(&fixed, &reports, true), None);
        reports.push(vec![0.0, 1024.0]);
        let reason = collapse(&fixed, &reports, false).unwrap();
        assert!(reason.starts_with("steps 2 to 21 were all skipped"), "{reason}");
        assert!(reason.contains("smaller precision.scaler.scale"), "{reason}");
        // A dynamic scale of that size has some way to go.
        let dynamic = ScalerConfig::Dynamic(DynamicGradScaler::SECTION.defaults());
        assert_eq!(collapse(&dynamic, &reports, false), None);
        // But it never made an update.
        let reason = collapse(&dynamic, &reports[1..4], true).unwrap();
        assert!(reason.starts_with("steps 1 to 3 were all skipped at a scale of 1024"), "{reason}");
        assert!(reason.contains("smaller precision.scaler.init_scale"), "{reason}");
    }
}
