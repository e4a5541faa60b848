//! `runner verify`: compares what this machine computes with reference values, by value.

mod golden;
mod language;
mod swiglu;
mod tolerance;

use std::path::Path;

use miette::{Result, miette};

use crate::device::DeviceId;
use crate::offload::Offload;
use crate::ops::Level;
use crate::recipe::Compute;
use crate::text;
pub use golden::{Golden, Values};
pub use tolerance::{Tolerance, tolerance};

/// What to verify and how.
#[derive(Clone, Debug)]
pub struct Options {
    pub device: DeviceId,
    /// All three when `None`.
    pub level: Option<Level>,
    pub compute: Compute,
    /// Replaces the table's absolute tolerance.
    pub atol: Option<f64>,
    /// Where the blocks of a language model live meanwhile, and where AdamW runs.
    pub offload: Offload,
}

/// What a quantity is; the tolerance depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of one operator.
    Output,
    Gradient,
    /// Of a whole language model.
    Logits,
    Loss,
    ModelGradient,
    /// After optimizer steps.
    Parameter,
}

/// One compared tensor.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    /// Largest |ours − reference|, and what is allowed.
    pub absolute: f64,
    pub absolute_allowed: f64,
    /// ‖ours − reference‖ / ‖reference‖, and what is allowed.
    pub relative: f64,
    pub relative_allowed: f64,
    /// Elements left out of the comparison, since the reference does not determine them.
    pub left_out: usize,
}

/// A tensor whose reference stays below this is rounding alone; its norm says nothing.
const ROUNDING_LEVEL: f64 = 1e-7;

impl Check {
    /// Compares two tensors of equal length element by element.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn new(name: String, ours: &[f64], reference: &[f64], allowed: Tolerance) -> Self {
        assert_eq!(ours.len(), reference.len(), "{name}: compared tensors must have equal sizes");
        let mut largest = 0.0f64;
        let (mut squares, mut norm) = (0.0, 0.0);
        for (a, b) in ours.iter().zip(reference) {
            let difference = (a - b).abs();
            // f64::max drops NaN; a NaN must fail.
            largest = if difference.is_nan() { f64::NAN } else { largest.max(difference) };
            if largest.is_nan() {
                break;
            }
            squares += difference * difference;
            norm += b * b;
        }
        let scale = reference.iter().fold(0.0f64, |m, b| m.max(b.abs()));
        let relative = match (largest.is_nan(), norm > 0.0) {
            (true, _) => f64::NAN,
            (false, true) => (squares / norm).sqrt(),
            // A reference of zeros allows nothing but zeros.
            (false, false) if squares == 0.0 => 0.0,
            (false, false) => f64::INFINITY,
        };
        Self {
            name,
            absolute: largest,
            absolute_allowed: allowed.absolute.max(allowed.of_largest * scale),
            relative,
            relative_allowed: allowed.relative,
            left_out: 0,
        }
    }

    /// Compares by the largest difference alone where the whole reference is rounding.
    #[must_use]
    pub fn of_rounding(mut self, reference: &[f64]) -> Self {
        if self.is_rounding(reference) {
            self.relative_allowed = f64::INFINITY;
        }
        self
    }

    fn is_rounding(&self, reference: &[f64]) -> bool {
        let largest = reference.iter().fold(0.0f64, |m, b| m.max(b.abs()));
        largest > 0.0 && largest < ROUNDING_LEVEL
    }

    pub fn passes(&self) -> bool {
        // Written so that NaN fails.
        self.absolute <= self.absolute_allowed && self.relative <= self.relative_allowed
    }
}

/// Compares everything the folder has reference values for.
///
/// # Errors
/// When the folder or its values cannot be read.
pub fn verify(folder: &Path, options: &Options) -> Result<Vec<Check>> {
    let golden = Golden::load(folder)?;
    if golden.has(&swiglu::NAMES) {
        return swiglu::verify(&golden, options);
    }
    if language::knows(&golden) {
        return language::verify(folder, &golden, options);
    }
    Err(miette!(
        help = "runner verify knows language models (config.json, model.safetensors, and a golden.safetensors with input_ids, labels, logits, loss, grad.*) and the SwiGLU operator (x, W, V, U, y, grad_y, dx, dW, dV, dU)",
        "{} holds no reference values that this version knows; it has: {}",
        folder.display(),
        golden.names().join(", ")
    ))
}

/// One line per quantity: largest difference, tolerance, pass or FAIL.
pub fn table(checks: &[Check]) -> String {
    let lines = checks
        .iter()
        .map(|check| {
            vec![
                check.name.clone(),
                if check.passes() { "pass" } else { "FAIL" }.into(),
                format!("{:.2e}", check.absolute),
                format!("{:.0e}", check.absolute_allowed),
                format!("{:.2e}", check.relative),
                if check.relative_allowed.is_finite() {
                    format!("{:.0e}", check.relative_allowed)
                } else {
                    "rounding".into()
                },
            ]
        })
        .collect();
    let header = ["quantity", "verdict", "max |a-b|", "allowed", "‖a-b‖/‖b‖", "allowed"];
    let table = text::table(&header, lines, 2);
    let failed = checks.iter().filter(|c| !c.passes()).count();
    let mut text = format!("{table}\n{} of {} quantities pass", checks.len() - failed, checks.len());
    let left_out: usize = checks.iter().map(|check| check.left_out).sum();
    if left_out > 0 {
        text += &format!(
            "\n{left_out} elements of parameters are compared by their gradients alone: those stay under 1e-7, \
             which AdamW amplifies to whole steps"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Tolerance = Tolerance { absolute: 1e-4, of_largest: 0.0, relative: 1e-4 };

    fn check(ours: &[f64], reference: &[f64]) -> Check {
        Check::new("t".into(), ours, reference, ALLOWED)
    }

    #[test]
    fn a_small_difference_passes_and_a_large_one_fails() {
        assert!(check(&[1.0, 2.00005], &[1.0, 2.0]).passes());
        assert!(!check(&[1.0, 2.001], &[1.0, 2.0]).passes());
    }

    /// Every element is within the absolute bound, yet the whole tensor is wrong.
    #[test]
    fn a_zeroed_tensor_of_small_values_fails_by_its_norm() {
        let reference = [5e-5, -3e-5, 8e-5];
        let zeroed = check(&[0.0; 3], &reference);
        assert!(zeroed.absolute <= zeroed.absolute_allowed);
        assert_eq!(zeroed.relative, 1.0);
        assert!(!zeroed.passes());
    }

    #[test]
    fn nan_never_passes() {
        assert!(!check(&[f64::NAN, 1.0], &[0.0, 1.0]).passes());
        assert!(!check(&[1.0], &[f64::NAN]).passes());
    }

    #[test]
    fn zeros_equal_only_zeros() {
        assert!(check(&[0.0], &[0.0]).passes());
        assert!(!check(&[1e-9], &[0.0]).passes());
    }
}
