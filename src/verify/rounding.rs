//! How far gradients move where nothing but the weights is rounded to 16 bits, and what gradients in 16 bits may differ by.
//!
//! A network amplifies rounding. The gradients of keys in a Gemma 2 of twelve columns move by 13 % where its weights are
//! rounded to bf16, and those of a pretrained network by 1 %: no limit for all networks holds both. So the network is asked,
//! in fp32 arithmetic: for its gradients with the weights as they are, and with weights that 16 bits hold. Both are the
//! runner's own. A wrong formula is in both, and the distance between them does not grow by it.

use std::io;

use burn::tensor::DType;

use super::check::{Difference, Outcome, ROUNDING_LEVEL};
use super::language::logits;
use super::reference::Reference;
use super::updates::{self, STEPS};
use super::{Check, Tolerance};
use crate::common::Compute;
use crate::model::language::Decoder;
use crate::params::named::Named;
use crate::precision::Precision;
use crate::recipe::Cell;
use crate::residence::Offload;
use crate::train::Training;

/// A layer rounds its weights once, and about 25 results, forward and backward: where each rounds alike, their sum is √25
/// times one of them. Of the networks of `tests/fixtures/families`, PyTorch's gradients that miss the table's limit are at most
/// 3.8 times as far from fp32 as rounded weights move them, but for one of OPT, where a ReLU changes its side.
const OF_WEIGHTS: f64 = 5.0;

/// The most that is allowed. A gradient of zeros is 1 away, and one of the wrong sign 2.
const MOST: f64 = 0.5;

const LOGITS: &str = "logits";

/// What names of gradients begin with, in the order of [`updates::Observed`].
const PREFIXES: [&str; 2] = ["grad.", "step3_grad."];

/// The checks of a cell in 16 bits, where each gradient that is too far from the reference is held to [`OF_WEIGHTS`]
/// times what rounding the weights moves it by, and so are logits. Other checks stay as they are, and so do all of
/// a cell that computes in more bits, or whose weights are packed.
///
/// # Errors
/// When the rounded weights cannot be written into a temporary folder.
pub fn widened(mut checks: Vec<Check>, cell: &Cell, reference: &Reference) -> io::Result<Vec<Check>> {
    let is_moved = |name: &str| name == LOGITS || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let too_far = |check: &Check| !check.passes() && is_moved(&check.name);
    let in_16_bits = matches!(cell.precision.compute, Compute::Bf16 | Compute::Fp16);
    if !in_16_bits || !checks.iter().any(too_far) || packs(cell) {
        return Ok(checks);
    }
    let after_updates = checks.iter().any(|check| too_far(check) && check.name.starts_with(PREFIXES[1]));
    let values = values(cell, reference, if after_updates { STEPS } else { 1 })?;
    let movements = movements(&values);
    // A gradient that is rounding alone moves by as much as itself.
    let known =
        || movements.iter().filter(|moves| moves.relative.is_finite() && moves.largest >= ROUNDING_LEVEL);
    let of_gradients = || known().filter(|moves| moves.name != LOGITS).map(|moves| moves.relative);
    let mean = of_gradients().sum::<f64>() / of_gradients().count().max(1) as f64;
    let mut moved = Vec::new();
    for check in checks.iter_mut().filter(|check| too_far(check)) {
        let Outcome::Compared(difference) = &mut check.outcome else { continue };
        if let Some(movement) = known().find(|movement| movement.name == check.name) {
            movement.widen(difference, mean);
            moved.push(movement.relative);
        }
    }
    if !moved.is_empty() {
        let compute = cell.precision.compute.into_str();
        let largest = 100.0 * moved.iter().fold(0.0f64, |largest, by| largest.max(*by));
        let reason = format!(
            "weights that are rounded to {compute}, in fp32 arithmetic, move them by up to {largest:.1} % of their norm; each \
             is held to {OF_WEIGHTS} times what they move it by, or gradients in the mean ({:.1} %)",
            100.0 * mean
        );
        checks.push(Check::not_compared(format!("the last digits of {} tensors", moved.len()), reason));
    }
    Ok(checks)
}

fn packs(cell: &Cell) -> bool {
    let table = cell.model.table(DType::F32, &cell.tuning()).expect("a language model");
    table.entries.iter().any(|entry| entry.packed)
}

/// How far a tensor moves where the weights are rounded.
struct Movement<'v> {
    name: &'v str,
    /// By its largest element, and by its norm.
    absolute: f64,
    relative: f64,
    /// Its own largest element, and its norm.
    largest: f64,
    norm: f64,
}

impl Movement<'_> {
    /// Allows [`OF_WEIGHTS`] times this, and a gradient as much of the `mean` over all: by chance one rounding moves a small
    /// tensor less than another does. The norm holds a gradient: one element may have it all, as where a ReLU changes its
    /// side.
    fn widen(&self, difference: &mut Difference, mean: f64) {
        let is_gradient = self.name != LOGITS;
        let relative = self.relative.max(if is_gradient { mean } else { 0.0 });
        let relative = (OF_WEIGHTS * relative).min(MOST);
        let absolute = if is_gradient { relative * self.norm } else { OF_WEIGHTS * self.absolute };
        difference.relative_allowed = difference.relative_allowed.max(relative);
        difference.absolute_allowed = difference.absolute_allowed.max(absolute.min(MOST * self.largest));
    }
}

fn movements([exact, rounded]: &[Named; 2]) -> Vec<Movement<'_>> {
    let movement = |name, exact: &[f64], rounded: &[f64]| {
        let Difference { absolute, relative, .. } = Difference::of(rounded, exact, Tolerance::EXACT);
        let largest = exact.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        let norm = exact.iter().map(|value| value * value).sum::<f64>().sqrt();
        Movement { name, absolute, relative, largest, norm }
    };
    exact
        .iter()
        .zip(rounded)
        .map(|((name, exact), (_, rounded))| movement(name.as_str(), exact, rounded))
        .collect()
}

/// Logits, and gradients at the first and the last of so many steps, in fp32 arithmetic: of the weights as they are, and of
/// those that the cell's type holds.
fn values(cell: &Cell, reference: &Reference, steps: usize) -> io::Result<[Named; 2]> {
    let with = |precision| Cell { precision, offload: Offload::default(), ..cell.clone() };
    let stored = with(Precision { autocast: false, scaler: None, ..cell.precision });
    let folder = tempfile::tempdir()?;
    training(&stored, reference).write_weights(folder.path())?;
    let exact = with(Precision::default());
    let mut rounded = exact.clone();
    rounded.model.load_from(folder.path().to_path_buf());
    Ok([exact, rounded].map(|cell| {
        let mut training = training(&cell, reference);
        let logits = (LOGITS.to_string(), logits(training.network(), &cell, reference));
        let observed = updates::observe(&mut training, steps).expect("without a scaler no step is skipped");
        let gradients = PREFIXES.iter().zip(observed.gradients).flat_map(|(prefix, gradients)| {
            gradients.into_iter().map(move |(parameter, values)| (format!("{prefix}{parameter}"), values))
        });
        [logits].into_iter().chain(gradients).collect()
    }))
}

pub fn training<'c>(cell: &'c Cell, reference: &Reference) -> Training<'c, Decoder> {
    Training::new(cell, reference.feed(cell), STEPS)
}

#[cfg(test)]
#[path = "rounding_tests.rs"]
mod tests;
