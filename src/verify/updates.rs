//! The steps of training that a reference has values of, and settings for which these do not hold.

use burn::tensor::Tensor;

use crate::common::Compute;
use crate::optim::{AdamW, OptimizerConfig};
use crate::params::named::Named;
use crate::recipe::Cell;
use crate::train::{BeforeUpdate, Build, End, Training};

/// Updates of a reference.
pub const STEPS: usize = 3;

/// Steps that a scaler may skip before it has found its scale: from fp32's largest to the least there are 142
/// halvings.
const MOST_SKIPPED: usize = 200;

/// What the steps show before their updates.
#[derive(Default)]
pub struct Observed {
    pub losses: Vec<f64>,
    /// Of the first and of the last step, as the loss gives them: without a scale, and not clipped.
    pub gradients: [Named; 2],
    /// By step, what clipping multiplies gradients by.
    pub clipping: Vec<f64>,
    /// Steps that the scaler skipped.
    pub skipped: usize,
}

/// Looks at the gradients of the first `count` steps.
///
/// # Errors
/// When gradients overflow in every step.
pub fn observe<N: Build>(training: &mut Training<'_, N>, count: usize) -> Result<Observed, String> {
    let mut observed = Observed { clipping: vec![1.0; count], ..Observed::default() };
    let Observed { gradients, clipping, .. } = &mut observed;
    let mut look = |step: usize, before: BeforeUpdate<'_, N>| {
        let scale = before.scale.map_or(1.0, number);
        clipping[step] = before.size.clip.clone().map_or(1.0, number) * scale;
        let place = match step {
            0 => 0,
            step if step + 1 == STEPS => 1,
            _ => return,
        };
        let mut found = before.residence.gradients();
        found.iter_mut().flat_map(|(_, values)| values).for_each(|value| *value /= scale);
        gradients[place] = found;
    };
    (observed.losses, observed.skipped) = steps(training, count, |training, step, end| {
        training.step(end, Some(&mut |before| look(step, before)))
    })?;
    Ok(observed)
}

/// Losses of all steps as they are timed.
///
/// # Errors
/// As [`observe`].
pub fn run<N: Build>(training: &mut Training<'_, N>) -> Result<Vec<f64>, String> {
    steps(training, STEPS, |training, _, end| training.step(end, None)).map(|(losses, _)| losses)
}

/// Losses of so many steps that are applied, and how many more were skipped. `step` makes one, by its number.
fn steps<'c, N: Build>(
    training: &mut Training<'c, N>,
    count: usize,
    mut step: impl FnMut(&mut Training<'c, N>, usize, &mut End) -> Option<Tensor<1>>,
) -> Result<(Vec<f64>, usize), String> {
    let mut losses: Vec<Vec<Tensor<1>>> = Vec::new();
    let mut skipped = 0;
    while losses.len() < count {
        training.load();
        let mut parts = Vec::new();
        let report = step(training, losses.len(), &mut |_, loss| parts.extend(loss));
        let report: Option<Vec<f64>> = report.map(|report| report.into_data().iter::<f64>().collect());
        match report.as_deref() {
            // A skipped step changes nothing but the scale, and the batch is the same each time.
            Some([0.0, scale]) if skipped == MOST_SKIPPED => {
                return Err(format!(
                    "gradients overflow in all of {skipped} steps, at a scale of {scale:e} in the last; set a \
                     smaller one in precision.scaler"
                ));
            }
            Some([0.0, _]) => skipped += 1,
            // Read when all are computed: a host that waits within a step would hide what comes too early.
            _ => losses.push(parts),
        }
    }
    Ok((losses.into_iter().map(|parts| parts.into_iter().map(number).sum()).collect(), skipped))
}

fn number(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_scalar::<f32>())
}

/// Why updates of this cell are not those of the reference, PyTorch's AdamW with its defaults; `None` where
/// they are. `clipping`: as [`Observed`] has it.
pub fn differ(cell: &Cell, clipping: &[f64]) -> Option<String> {
    if cell.train.optimizer != OptimizerConfig::AdamW(AdamW::default()) {
        let AdamW { lr, weight_decay, .. } = AdamW::default();
        return Some(format!(
            "train.optimizer is not the reference's, AdamW with lr {lr} and weight decay {weight_decay}"
        ));
    }
    if (1..=STEPS).any(|step| cell.train.schedule.factor(step, STEPS) != 1.0) {
        return Some("train.schedule changes the reference's learning rate".into());
    }
    let compute = cell.precision.compute;
    if !cell.precision.autocast && !matches!(compute, Compute::Fp32 | Compute::Tf32) {
        return Some(format!("weights in {} cannot hold what three steps change", compute.into_str()));
    }
    let least = clipping.iter().fold(1.0f64, |least, factor| least.min(*factor));
    // A scale and its inverse are rounded.
    let limit = cell.train.clip_norm.filter(|_| least < 1.0 - 1e-6)?;
    Some(format!(
        "train.clip_norm = {limit} scales gradients by {least:.3}, and the reference's are not clipped"
    ))
}
