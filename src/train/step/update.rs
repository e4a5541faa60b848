//! The update of a step: its size, and when it begins.

use burn::tensor::Tensor;

use super::{BeforeUpdate, Look, Step};
use crate::ops::dropout::of_micro_batch;
use crate::ops::name::OperatorName;
use crate::optim::{StepSize, clip_factor};
use crate::precision::Unscaled;
use crate::recipe::Clip;
use crate::train::build::Build;

impl<N: Build> Step<'_, N> {
    /// What the schedule makes of the next update's learning rate, as a factor.
    pub fn rate(&self) -> f64 {
        self.train.schedule.factor(self.updates + 1, self.total_updates)
    }

    /// The size of the next update without clipping.
    fn unclipped(&self) -> StepSize {
        // The seed of a micro-batch that no step has.
        let seed = of_micro_batch(self.seed, self.updates, usize::MAX);
        StepSize { rate: self.rate(), seed, ..StepSize::FULL }
    }

    /// The size with clipping; `None` if it depends on the norm of this step's gradients, as does whether a scaler skips the
    /// step.
    fn known_size(&self) -> Option<StepSize> {
        let size = self.unclipped();
        match self.train.clip_norm {
            _ if self.scaler.is_some() => None,
            None => Some(size),
            Some(limit) if self.train.clip == Clip::PreviousNorm => {
                let clip = clip_factor(self.squares.clone().sqrt(), limit);
                Some(StepSize { clip: Some(clip), ..size })
            }
            Some(_) => None,
        }
    }

    /// Before the last backward of a step: lets updates begin as gradients arrive, unless their size depends on the norm of
    /// all of them.
    pub(super) fn update_on_arrival(&mut self) {
        if let Some(size) = self.known_size() {
            self.stage.residence.update_on_arrival(&size);
        }
    }

    /// Σ g² over all gradients of the last step, multiplied by its scale, [1] in fp32; `None` where no update needs it.
    pub fn squares(&self) -> Option<Tensor<1>> {
        self.wants_norm().then(|| self.squares.clone())
    }

    /// Whether an update needs the norm over all gradients first, or it is asked for.
    pub(super) fn wants_norm(&self) -> bool {
        self.measures_norm || self.scaler.is_some() || self.train.clip_norm.is_some()
    }

    /// Waits for the sums over replicas that have not been taken yet.
    pub(super) fn take_sums(&mut self) {
        let residence = &mut self.stage.residence;
        if let Some(replicas) = &self.replicas {
            *residence.gradient_set() = replicas.sums_left(residence.network());
        }
    }

    /// Updates the weights by the gradients. Returns what the scaler reports, if there is one.
    pub(super) fn update(&mut self, look: Option<&mut Look<'_, N>>) -> Option<Tensor<1>> {
        let wants_norm = self.wants_norm();
        let residence = &mut self.stage.residence;
        let tied = residence.network().tied();
        let of_stages = self.stages.as_mut().and_then(|stages| stages.settle(tied, residence, wants_norm));
        let (size, scale) = (self.size(of_stages), self.scale());
        let residence = &mut self.stage.residence;
        let waits = look.is_none() && !wants_norm;
        if let Some(look) = look {
            look(BeforeUpdate { residence, size: &size, scale });
        }
        let scope = OperatorName::Update.scope();
        if let Some(replicas) = self.replicas.as_ref().filter(|_| waits) {
            *residence.gradient_set() = replicas.first_sums(residence.network());
            residence.update(&size);
            self.take_sums();
        }
        let residence = &mut self.stage.residence;
        residence.update(&size);
        drop(scope);
        if let Some(replicas) = &self.replicas {
            let weights = replicas.weights(residence.network());
            if !weights.is_empty() {
                residence.replace(weights);
            }
        }
        self.updates += 1;
        self.scaler.as_mut().zip(size.applied).map(|(scaler, applied)| scaler.update(applied))
    }

    /// The size of the update for these gradients. `of_stages`: Σ g² over the stages of all ranks.
    fn size(&mut self, of_stages: Option<Tensor<1>>) -> StepSize {
        let size = self.unclipped();
        if !self.wants_norm() {
            return size;
        }
        let _scope = OperatorName::GradientNorm.scope();
        let known = self.known_size();
        let squares = of_stages.unwrap_or_else(|| self.squares_of_ranks());
        self.squares = squares.clone();
        match (&self.scaler, self.train.clip_norm) {
            (None, None) => size,
            (None, Some(limit)) => {
                known.unwrap_or_else(|| StepSize { clip: Some(clip_factor(squares.sqrt(), limit)), ..size })
            }
            (Some(scaler), limit) => {
                let Unscaled { factor, applied } = scaler.unscale(squares, limit);
                StepSize { clip: Some(factor), applied: Some(applied), ..size }
            }
        }
    }

    /// Σ g² over all gradients, of every rank that has some.
    fn squares_of_ranks(&mut self) -> Tensor<1> {
        let residence = &mut self.stage.residence;
        let squares = match &self.tensor {
            None => residence.squares(),
            Some(tensor) => tensor.squares(residence.gradient_set()),
        };
        match &self.replicas {
            None => squares,
            Some(replicas) => replicas.of_updater(squares),
        }
    }
}
