//! How far the gradients of the last step move by the elements of parameters that rounding decides.
//!
//! AdamW makes a whole step of a gradient however small. Where one is rounding alone, so is its sign, and two exact
//! programs move the element apart by twice the learning rate. Such elements are left out where parameters are compared
//! ([`Changes`](super::changes::Changes)), but the gradients of all others at later steps depend on them. So the network is
//! asked: for its gradients with its weights as they are, and with those elements as far apart as they came.

use std::io;

use burn::tensor::{DType, TensorData};

use super::changes::find;
use super::check::{Difference, Outcome, ROUNDING_LEVEL};
use super::reference::Reference;
use super::rounding::training;
use super::updates::{self, STEPS};
use super::{Check, Golden, Tolerance};
use crate::common::Compute;
use crate::params::named::Named;
use crate::params::save::{LAYOUT, WEIGHTS, write_weights};
use crate::params::table::Tuning;
use crate::recipe::Cell;

/// An element that came apart in the first two steps may have come back in the third.
const OF_DISTANCE: f64 = 2.0;

/// The most that is added to what the table allows.
const MOST: f64 = 1e-3;

const LAST: &str = "step3_grad.";

/// The checks of a cell in fp32, where gradients of the last step may also differ by [`OF_DISTANCE`] times what elements
/// that rounding decides move them by. Other checks stay as they are.
///
/// # Errors
/// When weights cannot be written into a temporary folder.
pub fn widened(
    mut checks: Vec<Check>,
    cell: &Cell,
    golden: &Golden,
    reference: &Reference,
) -> io::Result<Vec<Check>> {
    let is_too_far = |check: &Check| !check.passes() && check.name.starts_with(LAST);
    let is_own = cell.precision.compute == Compute::Fp32 && cell.tuning.is_full();
    if !is_own || !checks.iter().any(is_too_far) {
        return Ok(checks);
    }
    let mut exact = training(cell, reference);
    let before = exact.parameters();
    let Ok(observed) = updates::observe(&mut exact, STEPS) else { return Ok(checks) };
    let (apart, count) = apart(before, &exact.parameters(), golden);
    if count == 0 {
        return Ok(checks);
    }
    let folder = tempfile::tempdir()?;
    let table = cell.model.table(DType::F32, &Tuning::default()).expect("a language model");
    let value = |name: &str| {
        let values = find(&apart, name).expect("all are there");
        TensorData::new(values.iter().map(|value| *value as f32).collect::<Vec<f32>>(), [values.len()])
    };
    write_weights(&folder.path().join(WEIGHTS), &table, LAYOUT, value).map_err(io::Error::other)?;
    let mut moved = cell.clone();
    moved.model.load_from(folder.path().to_path_buf());
    let Ok(moved) = updates::observe(&mut training(&moved, reference), 1) else { return Ok(checks) };
    let mut largest = 0.0f64;
    for check in checks.iter_mut().filter(|check| is_too_far(check)) {
        let Outcome::Compared(difference) = &mut check.outcome else { continue };
        let name = &check.name[LAST.len()..];
        let both = find(&observed.gradients[0], name).zip(find(&moved.gradients[0], name));
        let Some((exact, moved)) = both else { continue };
        let movement = OF_DISTANCE * Difference::of(moved, exact, Tolerance::EXACT).relative;
        difference.relative_allowed += movement.min(MOST);
        largest = largest.max(movement);
    }
    let reason = format!(
        "rounding decides the steps of {count} elements of parameters, and gradients after them may differ by what these \
         move them by, up to {largest:.0e} of their norm"
    );
    checks.push(Check::not_compared("the last digits of gradients of the last step", reason));
    Ok(checks)
}

/// Parameters `before` the steps, with the elements that rounding decides moved by as much as the reference's are away from
/// ours `after` the steps; and how many they are.
fn apart(mut before: Named, after: &Named, golden: &Golden) -> (Named, usize) {
    let mut count = 0;
    for (name, values) in &mut before {
        let values_of =
            |prefix: &str| golden.find(&format!("{prefix}.{name}")).map(|tensor| tensor.data.as_slice());
        let known = (values_of("grad"), values_of("step3_grad"), values_of("step3"), find(after, name));
        let (Some(first), Some(last), Some(theirs), Some(ours)) = known else { continue };
        if [first, last, theirs, ours].iter().any(|other| other.len() != values.len()) {
            continue;
        }
        for (i, value) in values.iter_mut().enumerate() {
            let sizes = [first[i].abs(), last[i].abs()];
            // Without any gradient there is no step.
            if sizes != [0.0; 2] && sizes.iter().any(|size| *size < ROUNDING_LEVEL) {
                *value += theirs[i] - ours[i];
                count += 1;
            }
        }
    }
    (before, count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::verify::ReferenceTensor;

    /// Those whose gradient is rounding at one of the steps, and not those that have none or a larger one.
    #[test]
    fn elements_that_rounding_decides_are_moved_by_the_distance() {
        let tensor =
            |data: &[f64]| ReferenceTensor { shape: vec![4], data: data.to_vec(), dtype: DType::F32 };
        let tensors = BTreeMap::from([
            ("grad.w".to_string(), tensor(&[5e-8, 1e-3, 0.0, -2e-3])),
            ("step3_grad.w".to_string(), tensor(&[1e-3, 1e-3, 0.0, -9e-8])),
            ("step3.w".to_string(), tensor(&[1.002, 2.5, 3.5, 4.0])),
            ("grad.v".to_string(), tensor(&[0.0; 4])),
        ]);
        let golden = Golden { tensors, unread: Vec::new() };
        let [w, v] = ["w", "v"].map(String::from);
        let before = vec![(w.clone(), vec![1.0, 2.0, 3.0, 4.0]), (v.clone(), vec![1.0; 4])];
        let after = vec![(w, vec![0.998, 2.001, 3.0, 4.001]), (v, vec![2.0; 4])];
        let (moved, count) = apart(before, &after, &golden);
        assert_eq!(count, 2);
        let expected = [1.004, 2.0, 3.0, 3.999];
        assert!(moved[0].1.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{moved:?}");
        assert_eq!(moved[1].1, [1.0; 4]);
    }
}
