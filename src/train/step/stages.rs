//! A step of a rank of a pipeline: its own list of actions, messages among them.

use burn::tensor::{DType, Tensor};

use super::{End, Step};
use crate::measure::Phase;
use crate::ops::name::OperatorName;
use crate::parallel::schedule::Action;
use crate::train::build::Build;

impl<N: Build> Step<'_, N> {
    /// As [`run`](Self::run). The loss of a micro-batch is known to the rank with the last stage.
    pub(super) fn run_stages(&mut self, batches: &[N::Batch], end: &mut End) -> Option<Tensor<1>> {
        let mut stages = self.stages.take().expect("it is one of a pipeline");
        stages.recorder.begin_step();
        let mut casts = self.keeps_casts.then(|| self.stage.residence.keep_casts());
        let (mut losses, mut report) = (Vec::new(), None);
        for action in stages.actions().to_vec() {
            match action {
                Action::Forward { stage, micro_batch } => {
                    let _masks = self.masks(micro_batch);
                    let network = self.stage.residence.network();
                    let loss = stages.forward((stage, micro_batch), network, &batches[micro_batch]);
                    losses.extend(loss.clone().filter(|_| self.train.sync_each_step));
                    end(Phase::Forward, loss);
                }
                Action::Backward { stage, micro_batch } => {
                    let _masks = self.masks(micro_batch);
                    // An update of its own is one by the mean of the micro-batch, of which the step's has a part.
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
                    end(Phase::Backward, None);
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
                    end(Phase::Optimizer, None);
                }
                Action::Infer { .. } => unreachable!("a pipeline trains"),
            }
        }
        stages.finish();
        self.stages = Some(stages);
        for loss in losses {
            // Data alone are read when they are looked at.
            let _: f32 = loss.into_scalar();
        }
        report
    }

    /// The loss of a micro-batch; on ranks without it 0.
    pub fn loss(&self, batch: &N::Batch) -> Tensor<1> {
        match &self.stages {
            None => self.stage.output(batch).inner(),
            Some(stages) => stages.loss(self.stage.residence.network(), batch),
        }
    }

    /// What the stages of a pipeline take by themselves.
    pub fn profile(&mut self, batch: &N::Batch) {
        if let Some(stages) = &mut self.stages {
            stages.profile(self.stage.residence.network(), batch);
        }
    }
}

#[cfg(test)]
#[path = "stages_tests.rs"]
mod tests;
