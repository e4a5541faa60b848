//! A step of a rank of a pipeline: its list of actions, including messages.

use burn::tensor::{DType, Tensor};

use super::{End, PhaseEnd, Step, read};
use crate::measure::Phase;
use crate::ops::name::OperatorName;
use crate::parallel::schedule::Action;
use crate::train::build::Build;

impl<N: Build> Step<'_, N> {
    /// As [`run`](Self::run). Only the rank of the last stage knows the loss of a micro-batch.
    pub(super) fn run_stages(&mut self, batches: &[N::Batch], end: &mut End) -> Option<Tensor<1>> {
        let mut stages = self.stages.take().expect("it is one of a pipeline");
        stages.recorder.begin_step();
        let mut casts = self.keeps_casts.then(|| self.stage.residence.keep_casts());
        let (mut losses, mut report) = (Vec::new(), None);
        for action in stages.actions.clone() {
            match action {
                Action::Forward { stage, micro_batch } => {
                    let _masks = self.masks(micro_batch);
                    let network = self.stage.residence.network();
                    let loss = stages.forward((stage, micro_batch), network, &batches[micro_batch]);
                    losses.extend(loss.clone().filter(|_| self.train.sync_each_step));
                    end(PhaseEnd::Phase(Phase::Forward), loss);
                }
                Action::Backward { stage, micro_batch } => {
                    let _masks = self.masks(micro_batch);
                    // The loss of a micro-batch is its part of the step's mean, but its own update takes its own mean.
                    let scale = match stages.division.updates() {
                        1 => self.scale(),
                        updates => Some(Tensor::full([1], updates as f64, (&self.device.burn(), DType::F32))),
                    };
                    let network = self.stage.residence.network();
                    let (gradients, own) =
                        stages.backward((stage, micro_batch), network, &batches[micro_batch], scale);
                    let sums = OperatorName::GradientSums.scope();
                    match own {
                        None => self.stage.residence.add(gradients),
                        Some(network) => self.stage.residence.gradient_set().add(&network, gradients),
                    }
                    drop(sums);
                    stages.recorder.end(Action::Backward { stage, micro_batch });
                    end(PhaseEnd::Phase(Phase::Backward), None);
                }
                Action::Send(message) => stages.send(&message),
                Action::Receive(message) => {
                    stages.receive(&message, self.stage.residence.network(), &batches[message.micro_batch]);
                }
                Action::Update => {
                    drop(casts.take());
                    stages.recorder.begin();
                    self.stages = Some(stages);
                    report = self.update(None);
                    stages = self.stages.take().expect("put there");
                    stages.recorder.end(Action::Update);
                    end(PhaseEnd::Phase(Phase::Optimizer), None);
                }
                Action::Infer { .. } => unreachable!("a pipeline trains"),
            }
        }
        stages.finish();
        self.stages = Some(stages);
        read(losses);
        report
    }

    /// The loss of a micro-batch; keeps nothing. 0 on ranks without the last stage.
    pub fn loss(&self, batch: &N::Batch) -> Tensor<1> {
        match &self.stages {
            None => self.stage.loss(batch),
            Some(stages) => stages.loss(self.stage.residence.network(), batch),
        }
    }

    /// Measures the times of a pipeline's stages.
    pub fn profile(&mut self, batch: &N::Batch) {
        let _casts = self.keeps_casts.then(|| self.stage.residence.keep_casts());
        if let Some(stages) = &mut self.stages {
            stages.profile(self.stage.residence.network(), batch);
        }
    }
}

#[cfg(test)]
#[path = "stages_tests.rs"]
mod tests;
