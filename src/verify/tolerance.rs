//! The one table of tolerances, by quantity and precision.

use super::Kind;
use crate::common::{Compute, DeviceId};

/// What a comparison allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The largest |a − b| is at most the larger of `absolute` and `of_largest · max |b|`.
    pub absolute: f64,
    pub of_largest: f64,
    /// ‖a − b‖ / ‖b‖
    pub relative: f64,
}

impl Tolerance {
    /// The same values.
    pub const EXACT: Self = Self { absolute: 0.0, of_largest: 0.0, relative: 0.0 };
}

/// One unit in the last place is 6e-8 in fp32, 4.9e-4 in tf32 and fp16 and 3.9e-3 in bf16, relative to the
/// value. The operators round every intermediate result to the compute type, so the half
/// precisions are allowed several of their units. A weight's gradient is a sum over all tokens: over
/// a thousand tokens fp32 rounds it by some ten units of its largest value, which passes 1e-4 once
/// that value passes 60.
///
/// What three AdamW steps of 1e-3 change is compared where the gradient determines it: a step that is left out
/// is a third of it, and the weight decay of weights of size 1 a hundredth. The committed references change
/// alike within 6e-6 in fp32, and under autocast within 6e-3 in fp16 and 4e-2 in bf16, on the CPU.
///
/// Outputs beyond 25 round by more than 1e-4 too: each is a sum of up to thousands of products.
///
/// Logits of a deep network round by more than one unit of their largest: those of a pretrained network of 30
/// layers by 2.5e-6 of it, in PyTorch as here.
///
/// The CPU's fp32 logits of small size are held to a tenth of what the GPU's are: its sums run in the reference's
/// order of magnitude of partial sums, a GPU's over other blocks.
const TABLE: [(Kind, Compute, Tolerance); 24] = [
    (Kind::Output, Compute::Fp32, Tolerance { absolute: 1e-4, of_largest: 4e-6, relative: 1e-4 }),
    (Kind::Gradient, Compute::Fp32, Tolerance { absolute: 1e-4, of_largest: 4e-6, relative: 1e-4 }),
    (Kind::Logits, Compute::Fp32, Tolerance { absolute: 1e-4, of_largest: 4e-6, relative: 1e-4 }),
    (Kind::Loss, Compute::Fp32, Tolerance { absolute: 1e-5, of_largest: 0.0, relative: 1e-5 }),
    (Kind::Change, Compute::Fp32, Tolerance { absolute: 1e-4, of_largest: 0.0, relative: 1e-3 }),
    (Kind::Output, Compute::Tf32, Tolerance { absolute: 0.0, of_largest: 5e-3, relative: 2e-3 }),
    (Kind::Gradient, Compute::Tf32, Tolerance { absolute: 0.0, of_largest: 5e-3, relative: 3e-3 }),
    (Kind::Change, Compute::Tf32, Tolerance { absolute: 5e-4, of_largest: 0.0, relative: 5e-2 }),
    (Kind::Change, Compute::Fp16, Tolerance { absolute: 5e-4, of_largest: 0.0, relative: 5e-2 }),
    (Kind::Change, Compute::Bf16, Tolerance { absolute: 5e-4, of_largest: 0.0, relative: 1e-1 }),
    (Kind::Output, Compute::Fp16, Tolerance { absolute: 0.0, of_largest: 5e-3, relative: 2e-3 }),
    (Kind::Gradient, Compute::Fp16, Tolerance { absolute: 0.0, of_largest: 5e-3, relative: 3e-3 }),
    (Kind::Output, Compute::Bf16, Tolerance { absolute: 0.0, of_largest: 4e-2, relative: 1.5e-2 }),
    (Kind::Gradient, Compute::Bf16, Tolerance { absolute: 0.0, of_largest: 4e-2, relative: 2e-2 }),
    (Kind::ModelGradient, Compute::Fp32, Tolerance { absolute: 1e-4, of_largest: 4e-6, relative: 1e-4 }),
    (Kind::ModelGradient, Compute::Tf32, Tolerance { absolute: 1e-6, of_largest: 1e-2, relative: 1e-2 }),
    (Kind::ModelGradient, Compute::Fp16, Tolerance { absolute: 1e-6, of_largest: 2e-2, relative: 1e-2 }),
    (Kind::ModelGradient, Compute::Bf16, Tolerance { absolute: 1e-6, of_largest: 1e-1, relative: 6e-2 }),
    (Kind::Logits, Compute::Tf32, Tolerance { absolute: 0.0, of_largest: 5e-3, relative: 3e-3 }),
    (Kind::Logits, Compute::Fp16, Tolerance { absolute: 0.0, of_largest: 5e-3, relative: 3e-3 }),
    (Kind::Logits, Compute::Bf16, Tolerance { absolute: 0.0, of_largest: 4e-2, relative: 3e-2 }),
    (Kind::Loss, Compute::Tf32, Tolerance { absolute: 5e-3, of_largest: 0.0, relative: 1e-3 }),
    (Kind::Loss, Compute::Fp16, Tolerance { absolute: 5e-3, of_largest: 0.0, relative: 1e-3 }),
    (Kind::Loss, Compute::Bf16, Tolerance { absolute: 4e-2, of_largest: 0.0, relative: 1e-2 }),
];

pub fn tolerance(kind: Kind, compute: Compute, device: DeviceId) -> Tolerance {
    let mut tolerance = TABLE
        .into_iter()
        .find(|(k, c, _)| *k == kind && *c == compute)
        .map(|(_, _, tolerance)| tolerance)
        .expect("every kind has every compute type");
    if (kind, device) == (Kind::Logits, DeviceId::Cpu) {
        tolerance.absolute /= 10.0;
    }
    tolerance
}
