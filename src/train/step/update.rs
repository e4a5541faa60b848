//! The update of a step: how far it goes, and when.

use burn::tensor::Tensor;

use super::{BeforeUpdate, Look, Step};
use crate::ops::dropout::of_micro_batch;
use crate::ops::name::OperatorName;
use crate::optim::{StepSize, clip_factor};
use crate::precision::Unscaled;
use crate::recipe::Clip;
use crate::train::build::Build;

impl<N: Build> Step<'_, N> {
    /// The update that comes, before its gradients are known.
    fn unclipped(&self) -> StepSize {
        let rate = self.train.schedule.factor(self.updates + 1, self.total_updates);
        // As the masks of a micro-batch that no step has.
        let seed = of_micro_batch(self.seed, self.updates, usize::MAX);
        StepSize { rate, seed, ..StepSize::FULL }
    }

    /// The same with its clipping; `None` where that waits for the norm of these gradients.
    fn known_size(&self) -> Option<StepSize> {
        let size = self.unclipped();
        match self.train.clip_norm {
            None => Some(size),
            Some(limit) if self.train.clip == Clip::PreviousNorm => {
                let clip = clip_factor(self.previous_squares.clone().sqrt(), limit);
                Some(StepSize { clip: Some(clip), ..size })
            }
            Some(_) => None,
        }
    }

    /// The backward that comes is the last before its update. No update may use the norm of gradients that
    /// are still to come.
    pub(super) fn update_on_arrival(&mut self) {
        if let Some(size) = self.known_size() {
            self.stage.residence.update_on_arrival(&size);
        }
    }

    /// Whether an update needs the norm over all gradients first.
    pub(super) fn wants_norm(&self) -> bool {
        self.scaler.is_some() || self.train.clip_norm.is_some()
    }

    /// Waits for the replicas' sums that nobody has taken yet.
    pub(super) fn take_sums(&mut self) {
        let residence = &mut self.stage.residence;
        if let Some(replicas) = &self.replicas {
            *residence.gradient_set() = replicas.sums_left(residence.network());
        }
    }

    /// Updates the weights by the gradients there are. Gives what the scaler reports, where there is one.
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

    /// How far the update goes that the gradients give. `of_stages`: Σ g² over the stages of all ranks.
    fn size(&mut self, of_stages: Option<Tensor<1>>) -> StepSize {
        let _scope = OperatorName::GradientNorm.scope();
        let (size, known) = (self.unclipped(), self.known_size());
        let mut squares = || {
            if let Some(squares) = &of_stages {
                return squares.clone();
            }
            let residence = &mut self.stage.residence;
            let squares = match &self.tensor {
                None => residence.squares(),
                Some(tensor) => tensor.squares(residence.gradient_set()),
            };
            self.replicas
                .as_ref()
                .map_or_else(|| squares.clone(), |replicas| replicas.of_updater(squares.clone()))
        };
        match (&self.scaler, self.train.clip_norm) {
            (None, None) => size,
            (None, Some(_)) if let Some(known) = known => {
                self.previous_squares = squares();
                known
            }
            (None, Some(limit)) => StepSize { clip: Some(clip_factor(squares().sqrt(), limit)), ..size },
            (Some(scaler), limit) => {
                let Unscaled { factor, applied } = scaler.unscale(squares(), limit);
                StepSize { clip: Some(factor), applied: Some(applied), ..size }
            }
        }
    }
}
