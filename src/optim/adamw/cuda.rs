//! AdamW on CUDA, in place: the parameters of a step in as few launches as their types need.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
pub use cpu_kernels::adamw::AdamWStep;

pub use super::kernels::Moments;
use super::kernels::adamw;
use crate::device::cuda;
use crate::ops::kernels::launch::{contiguous, expect, writable};

/// Parameters of one launch.
pub const TOGETHER: u64 = cuda::TOGETHER as u64;

/// Steps of parameters that are launched together, when this is dropped.
#[derive(Default)]
pub struct Pending {
    groups: Vec<Group>,
    /// The low 16 bits of the next parameter's master.
    remainders: Option<CubeTensor>,
}

/// Parameters of one type, with gradients of one, that take the same step.
struct Group {
    moments: Moments,
    step: AdamWStep,
    clip: Option<CubeTensor>,
    shared: Option<CubeTensor>,
    /// p, g, m and v, and each tensor's number.
    tensors: Vec<[CubeTensor; 4]>,
    numbers: Vec<u32>,
    /// One for each of them, or none.
    remainders: Vec<CubeTensor>,
}

impl Pending {
    /// Runs `work`, which steps one parameter in bf16. The parameter and these 16 bits for each element are its fp32 master.
    /// Returns what `work` does, and the bits after the step.
    pub fn with_remainders<R>(
        &mut self,
        remainders: CubeTensor,
        work: impl FnOnce(&mut Self) -> R,
    ) -> (R, CubeTensor) {
        let remainders = writable(remainders);
        self.remainders = Some(remainders.clone());
        let result = work(self);
        assert!(self.remainders.is_none(), "a step has taken the remainders");
        (result, remainders)
    }

    /// One step of `torch.optim.AdamW`:
    ///
    /// ```text
    /// g ← clip · g,  p ← p · decay
    /// m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
    /// p ← p − rate · m / (√v / correction + eps)
    /// ```
    ///
    /// p, g, m and v of one shape, p and g of any float types, m and v as `moments` says, with the tensor's number; clip \[1\] f32, or 1 without it.
    /// shared \[3\] f32 holds whether the step is applied, 1 − β₁ᵗ and 1 − β₂ᵗ: with it rate is divided by the second
    /// and correction multiplied by the root of the third, and where the first is 0, p, m and v stay as they are.
    /// Returns p, m and v, each in its own memory where nobody else holds it. They hold the result when the launch
    /// has been made.
    pub fn step(
        &mut self,
        (moments, number): (Moments, u32),
        [p, g, m, v]: [CubeTensor; 4],
        clip: Option<&CubeTensor>,
        shared: Option<&CubeTensor>,
        step: AdamWStep,
    ) -> [CubeTensor; 3] {
        let ([p, m, v], g) = ([p, m, v].map(writable), contiguous(&g));
        clip.inspect(|clip| expect(clip, DType::F32, 1, "clip"));
        shared.inspect(|shared| expect(shared, DType::F32, 3, "shared"));
        let tensors = [p.clone(), g, m.clone(), v.clone()];
        let remainders = self.remainders.take();
        let types = |tensors: &[CubeTensor; 4]| tensors.each_ref().map(|tensor| tensor.dtype);
        let fits = |group: &&mut Group| {
            (group.moments, group.step) == (moments, step)
                && types(&group.tensors[0]) == types(&tensors)
                && group.remainders.is_empty() == remainders.is_none()
        };
        match self.groups.iter_mut().find(fits) {
            Some(group) => {
                group.tensors.push(tensors);
                group.numbers.push(number);
                group.remainders.extend(remainders);
            }
            None => self.groups.push(Group {
                moments,
                step,
                clip: clip.cloned(),
                shared: shared.cloned(),
                tensors: vec![tensors],
                numbers: vec![number],
                remainders: remainders.into_iter().collect(),
            }),
        }
        [p, m, v]
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for Group { moments, step, clip, shared, tensors, numbers, remainders } in self.groups.drain(..) {
            adamw((&tensors, &numbers), &remainders, moments, clip.as_ref(), shared.as_ref(), step);
        }
    }
}
