//! [`StepSize`]: the factors of one step, and whether it is applied.

use burn::tensor::Tensor;

use super::seed_of_rank;

/// The factors of one step.
#[derive(Clone)]
pub struct StepSize {
    /// Factor of the learning rate, from the schedule.
    pub rate: f64,
    /// Factor of every gradient, which clips it and undoes the loss's scale, [1] in fp32; `None`: 1.
    pub clip: Option<Tensor<1>>,
    /// 1, or 0 where parameters and state are to stay as they are, [1] in fp32 on the device; `None`: 1.
    pub applied: Option<Tensor<1>>,
    /// Seeds the random rounding.
    pub seed: u64,
}

impl StepSize {
    /// The learning rate as configured, no clipping, and nothing skipped.
    pub const FULL: Self = Self { rate: 1.0, clip: None, applied: None, seed: 0 };

    /// Of a rank that updates other parameters than the other ranks, of which it needs other random numbers.
    #[must_use]
    pub fn on_rank(&self, rank: usize) -> Self {
        Self { seed: seed_of_rank(self.seed, rank), ..self.clone() }
    }

    /// Whether the step is to be applied; waits for the flag.
    pub fn applied_on_host(&self) -> bool {
        self.applied.clone().is_none_or(|applied| applied.into_scalar::<f32>() != 0.0)
    }

    /// The factor of the gradients as a number; waits for it.
    pub fn clip_on_host(&self) -> f32 {
        self.clip.clone().map_or(1.0, |clip| clip.into_scalar())
    }
}
