//! [`Check`]: a quantity of a reference, and how far ours is from it.

use super::tolerance::{Tolerance, tolerance};
use super::{Kind, ReferenceTensor};
use crate::common::{Compute, DeviceId};
use crate::recipe::Cell;

/// What became of one quantity.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    pub outcome: Outcome,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Compared(Difference),
    /// The reference's value does not hold for these settings: why.
    NotCompared(String),
    /// It should be compared and cannot be: why.
    Failed(String),
}

/// Between two tensors of equal size.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Largest |ours − reference|, and what is allowed.
    pub absolute: f64,
    pub absolute_allowed: f64,
    /// ‖ours − reference‖ / ‖reference‖, and what is allowed.
    pub relative: f64,
    pub relative_allowed: f64,
    /// Elements left out of the comparison, since the reference does not determine them.
    pub left_out: usize,
}

impl Check {
    /// Compares two tensors element by element; tensors of unequal sizes fail.
    pub fn new(name: impl Into<String>, ours: &[f64], reference: &[f64], allowed: Tolerance) -> Self {
        if ours.len() != reference.len() {
            let (ours, theirs) = (ours.len(), reference.len());
            return Self::failed(name, format!("the reference has {theirs} elements, and ours has {ours}"));
        }
        Self { name: name.into(), outcome: Outcome::Compared(Difference::of(ours, reference, allowed)) }
    }

    pub fn not_compared(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::NotCompared(reason.into()) }
    }

    pub fn failed(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Failed(reason.into()) }
    }

    /// With a label that tells it apart from the same quantity of another cell.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        let name = if label.is_empty() { self.name } else { format!("{label}: {}", self.name) };
        Self { name, ..self }
    }

    /// Whether nothing is wrong with it.
    pub fn passes(&self) -> bool {
        match &self.outcome {
            Outcome::Compared(difference) => difference.passes(),
            Outcome::NotCompared(_) => true,
            Outcome::Failed(_) => false,
        }
    }

    pub fn is_compared(&self) -> bool {
        matches!(self.outcome, Outcome::Compared(_))
    }
}

impl Difference {
    /// # Panics
    /// When the sizes differ.
    pub fn of(ours: &[f64], reference: &[f64], allowed: Tolerance) -> Self {
        assert_eq!(ours.len(), reference.len(), "compared tensors must have equal sizes");
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
        let relative = match (largest.is_nan(), norm > 0.0) {
            (true, _) => f64::NAN,
            (false, true) => (squares / norm).sqrt(),
            // A reference of zeros allows nothing but zeros.
            (false, false) if squares == 0.0 => 0.0,
            (false, false) => f64::INFINITY,
        };
        Self {
            absolute: largest,
            absolute_allowed: allowed.absolute.max(allowed.of_largest * largest_of(reference)),
            relative,
            relative_allowed: allowed.relative,
            left_out: 0,
        }
    }

    pub fn passes(&self) -> bool {
        // Written so that NaN fails.
        self.absolute <= self.absolute_allowed && self.relative <= self.relative_allowed
    }
}

fn largest_of(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, value| value.abs().max(largest))
}

/// A gradient whose reference stays below this is rounding alone, as that of a bias of keys that are not
/// rotated: its exact value is 0, and its norm says nothing.
pub const ROUNDING_LEVEL: f64 = 1e-7;

/// What such a gradient may differ by: as much as rounding makes of 0. For the keys' biases of the committed
/// GPT-2 that is 3.5e-9 in fp32 on the CPU, where the table allows other gradients 1e-4, and 5e-5 in bf16.
fn rounding_allowed(compute: Compute) -> f64 {
    match compute {
        Compute::Fp32 => 1e-6,
        Compute::Tf32 | Compute::Fp16 => 2e-5,
        Compute::Bf16 => 1e-4,
    }
}

/// The most that [`Comparison::with_reference`] allows a gradient.
const MOST_OF_REFERENCE: f64 = 1e-3;

/// In which precision and where values are computed that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    pub compute: Compute,
    device: DeviceId,
    /// Replaces the table's absolute tolerance.
    atol: Option<f64>,
    /// What a gradient's norm may differ by because the reference's own is not exact.
    of_reference: f64,
}

impl Comparison {
    pub fn new(cell: &Cell, atol: Option<f64>) -> Self {
        Self { compute: cell.precision.compute, device: cell.device_id(), atol, of_reference: 0.0 }
    }

    /// With a reference whose loss is `off` from the loss of its own logits in f64. Libraries compute the loss
    /// in fp32, even of a network in f64, and some with an exponential of few digits: the gradients of a token's
    /// logits then no longer add up to 0, which the head's matrix turns into a hundred times as much. Of a
    /// pretrained network of 135 million weights whose loss was 6.9e-6 off, gradients were 2.3e-4 off. More than
    /// [`MOST_OF_REFERENCE`] is no rounding.
    #[must_use]
    pub fn with_reference(self, off: f64) -> Self {
        let of_reference = 100.0 * off;
        Self { of_reference: if of_reference <= MOST_OF_REFERENCE { of_reference } else { 0.0 }, ..self }
    }

    /// What gradients are held to where the reference's are less exact than the table asks.
    pub fn widened(&self) -> Option<f64> {
        let table = tolerance(Kind::ModelGradient, self.compute, self.device).relative;
        Some(self.of_reference).filter(|of_reference| *of_reference > table)
    }

    pub fn check(&self, name: &str, kind: Kind, ours: &[f64], reference: &ReferenceTensor) -> Check {
        if ours.len() != reference.data.len() {
            let shape = &reference.shape;
            let reason =
                format!("the reference has the shape {shape:?}, and ours has {} elements", ours.len());
            return Check::failed(name, reason);
        }
        let difference = self.difference(kind, ours, &reference.data, &reference.rounding());
        Check { name: name.into(), outcome: Outcome::Compared(difference) }
    }

    /// `rounding`: what each element of the reference lost when it was stored, at most.
    pub fn difference(&self, kind: Kind, ours: &[f64], reference: &[f64], rounding: &[f64]) -> Difference {
        let mut allowed = tolerance(kind, self.compute, self.device);
        if let Some(atol) = self.atol {
            (allowed.absolute, allowed.of_largest) = (atol, 0.0);
        }
        let mut difference = Difference::of(ours, reference, allowed);
        let largest = largest_of(reference);
        if kind == Kind::ModelGradient {
            difference.relative_allowed = difference.relative_allowed.max(self.of_reference);
            difference.absolute_allowed = difference.absolute_allowed.max(self.of_reference * largest);
        }
        if kind == Kind::ModelGradient && largest > 0.0 && largest < ROUNDING_LEVEL {
            difference.relative_allowed = f64::INFINITY;
            difference.absolute_allowed = self.atol.unwrap_or(rounding_allowed(self.compute));
        }
        let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm(rounding) > 0.0 {
            difference.absolute_allowed += largest_of(rounding);
            difference.relative_allowed += norm(rounding) / norm(reference);
        }
        difference
    }
}

/// How many of the quantities pass, and how many were judged.
pub fn count(checks: &[Check]) -> (usize, usize) {
    let judged = || checks.iter().filter(|check| !matches!(check.outcome, Outcome::NotCompared(_)));
    (judged().filter(|check| check.passes()).count(), judged().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Tolerance = Tolerance { absolute: 1e-4, of_largest: 0.0, relative: 1e-4 };

    fn difference(ours: &[f64], reference: &[f64]) -> Difference {
        Difference::of(ours, reference, ALLOWED)
    }

    #[test]
    fn a_small_difference_passes_and_a_large_one_fails() {
        assert!(difference(&[1.0, 2.00005], &[1.0, 2.0]).passes());
        assert!(!difference(&[1.0, 2.001], &[1.0, 2.0]).passes());
    }

    #[test]
    fn tensors_of_unequal_sizes_fail() {
        let check = Check::new("x", &[1.0], &[1.0, 2.0], ALLOWED);
        assert!(!check.passes() && !check.is_compared());
    }

    /// Every element is within the absolute bound, yet the whole tensor is wrong.
    #[test]
    fn a_zeroed_tensor_of_small_values_fails_by_its_norm() {
        let zeroed = difference(&[0.0; 3], &[5e-5, -3e-5, 8e-5]);
        assert!(zeroed.absolute <= zeroed.absolute_allowed);
        assert_eq!(zeroed.relative, 1.0);
        assert!(!zeroed.passes());
    }

    #[test]
    fn nan_never_passes() {
        assert!(!difference(&[f64::NAN, 1.0], &[0.0, 1.0]).passes());
        assert!(!difference(&[1.0], &[f64::NAN]).passes());
    }

    #[test]
    fn zeros_equal_only_zeros() {
        assert!(difference(&[0.0], &[0.0]).passes());
        assert!(!difference(&[1e-9], &[0.0]).passes());
    }

    /// A gradient that is rounding alone has no norm to hold it, so its absolute bound is as small as it is.
    #[test]
    fn a_gradient_where_none_should_be_fails_in_every_precision() {
        for (compute, wrong) in [(Compute::Fp32, 5e-6), (Compute::Fp16, 1e-4), (Compute::Bf16, 5e-4)] {
            let comparison = Comparison { compute, device: DeviceId::Cpu, atol: None, of_reference: 0.0 };
            let passes =
                |ours: f64| comparison.difference(Kind::ModelGradient, &[ours], &[2e-8], &[0.0]).passes();
            assert!(passes(-3e-8) && !passes(wrong), "{compute:?}");
        }
    }

    /// 5e-6 of a loss are 5e-4 of a gradient; a loss that is wrong widens nothing.
    #[test]
    fn gradients_of_a_rounded_reference_are_held_to_its_rounding() {
        let exact =
            Comparison { compute: Compute::Fp32, device: DeviceId::Cpu, atol: None, of_reference: 0.0 };
        let passes = |off: f64, kind: Kind, ours: f64| {
            exact.with_reference(off).difference(kind, &[ours], &[1e-2], &[0.0]).passes()
        };
        assert!(!passes(0.0, Kind::ModelGradient, 1.0003e-2) && passes(5e-6, Kind::ModelGradient, 1.0003e-2));
        assert!(
            !passes(5e-6, Kind::ModelGradient, 1.0007e-2) && !passes(5e-2, Kind::ModelGradient, 1.0003e-2)
        );
        assert_eq!(exact.with_reference(1e-7).widened(), None);
        assert!(exact.with_reference(5e-6).widened().is_some());
    }
}
