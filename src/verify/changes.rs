//! [`Changes`]: what optimizer steps changed of each parameter, compared with what they changed of a reference's.

use super::check::{Comparison, Difference, ROUNDING_LEVEL};
use super::{Golden, Kind, ReferenceTensor};
use crate::common::Compute;
use crate::params::named::Named;

/// The values of this name.
pub fn find<'n>(values: &'n Named, name: &str) -> Option<&'n [f64]> {
    values.iter().find(|(ours, _)| ours == name).map(|(_, values)| values.as_slice())
}

/// Parameters before and after the steps.
pub struct Changes<'o> {
    pub before: Named,
    pub after: Named,
    /// Gradients at the last step.
    pub last: &'o Named,
}

/// AdamW divides by the size of a gradient, so of one that is rounding alone the step is not determined, and
/// of one that rounding changes the step changes as much. Of the largest gradient of its tensor: where
/// rounding is a few per cent of a gradient at most.
fn determined(compute: Compute) -> f64 {
    match compute {
        Compute::Fp32 => 1e-3,
        Compute::Tf32 | Compute::Fp16 => 5e-2,
        Compute::Bf16 => 3e-1,
    }
}

impl Changes<'_> {
    /// What the steps changed of a parameter, compared with what they changed of the reference's.
    ///
    /// # Errors
    /// Why they cannot be compared.
    pub fn compare(
        &self,
        parameter: &str,
        reference: &ReferenceTensor,
        golden: &Golden,
        comparison: Comparison,
    ) -> Result<Difference, String> {
        let (Some(before), Some(after)) = (find(&self.before, parameter), find(&self.after, parameter))
        else {
            return Err("the model has no parameter of this name".into());
        };
        let of = |prefix: &str| golden.find(&format!("{prefix}.{parameter}")).map(|values| &values.data);
        let gradients = (of("grad"), of("step3_grad"), find(self.last, parameter));
        let (Some(first), Some(last), Some(ours)) = gradients else {
            return Err("its gradients, which say what AdamW determines, are not all there".into());
        };
        let sizes = [before.len(), after.len(), first.len(), last.len(), ours.len()];
        if sizes != [reference.data.len(); 5] {
            let shape = &reference.shape;
            return Err(format!(
                "the reference has the shape {shape:?}, which ours or its gradients have not"
            ));
        }
        let above = |bound: f64| {
            // A row of the embedding that no token reads has no gradient on either side.
            let absent = |i: usize| first[i] == 0.0 && last[i] == 0.0 && ours[i] == 0.0;
            move |i: &usize| absent(*i) || (first[*i].abs() >= bound && last[*i].abs() >= bound)
        };
        let rounding = reference.rounding();
        let compared = |keep: &dyn Fn(&usize) -> bool| {
            let kept: Vec<usize> = (0..before.len()).filter(keep).collect();
            let change = |values: &[f64]| kept.iter().map(|i| values[*i] - before[*i]).collect::<Vec<f64>>();
            let rounding: Vec<f64> = kept.iter().map(|i| rounding[*i]).collect();
            let difference =
                comparison.difference(Kind::Change, &change(after), &change(&reference.data), &rounding);
            Difference { left_out: before.len() - kept.len(), ..difference }
        };
        let compute = comparison.compute;
        let largest = first.iter().chain(last).fold(0.0f64, |m, g| m.max(g.abs()));
        let closely = compared(&above(ROUNDING_LEVEL.max(determined(compute) * largest)));
        if compute != Compute::Fp32 {
            return Ok(closely);
        }
        // Smaller ones too, by the absolute bound alone.
        let Difference { relative, relative_allowed, .. } = closely;
        Ok(Difference { relative, relative_allowed, ..compared(&above(ROUNDING_LEVEL)) })
    }
}
