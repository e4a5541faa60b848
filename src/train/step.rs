//! [`Step`]: carries out a schedule with a network, its optimizer and its scaler.

use burn::tensor::{Gradients, Tensor};

use super::build::Build;
use crate::device::DeviceId;
use crate::measure::Phase;
use crate::ops::autocast::keep_casts;
use crate::optim::host::Work;
use crate::optim::{GradientSet, Optimizer, StepSize, clip_factor};
use crate::parallel::schedule::Action;
use crate::parallel::stage::{Stage, gradients};
use crate::precision::{GradScaler, Unscaled};
use crate::recipe::{Cell, Train};
use crate::residence::Blocks;

/// What a step has computed when its update comes.
pub struct BeforeUpdate<'s, N> {
    pub network: &'s N,
    /// Of what is not in blocks on the host; times the scale where there is one.
    pub gradients: &'s GradientSet,
    pub size: &'s StepSize,
    /// Of the loss, [1] in fp32; `None`: 1.
    pub scale: Option<Tensor<1>>,
}

/// Sees what a step has computed.
pub type Look<'l, N> = dyn FnMut(BeforeUpdate<'_, N>) + 'l;

/// Hears of the end of each phase, and after a forward of its loss, [1] in fp32.
pub type End<'e> = dyn FnMut(Phase, Option<Tensor<1>>) + 'e;

/// All that a step changes.
pub struct Step<'a, N: Build> {
    train: &'a Train,
    device: DeviceId,
    pub stage: Stage<N>,
    pub optimizer: Optimizer,
    scaler: Option<GradScaler>,
    /// Updates so far, and all of them.
    pub updates: usize,
    total_updates: usize,
}

impl<'a, N: Build> Step<'a, N> {
    /// Makes the network, its optimizer and scaler, the same ones each time. `total_updates`: what the
    /// schedule of the learning rate goes over; `largest_input`: elements of a block's input at most.
    pub fn new(cell: &'a Cell, total_updates: usize, largest_input: usize) -> Self {
        let device = cell.device_id();
        let mut optimizer = Optimizer::new(&cell.train.optimizer, cell.offload.optimizer, device);
        let plain = device.burn();
        let scaler = cell.precision.scaler.map(|config| GradScaler::new(config, &plain));
        plain.seed(u64::from(cell.seed));
        let network = N::build(cell);
        if let Some(blocks) = network.offloaded() {
            if cell.train.clip_norm.is_some() {
                blocks.want_squares();
            }
            blocks.make_room(largest_input);
        }
        optimizer.adopt(&network, network.offloaded());
        let stage = Stage::new(network, cell.precision.region());
        Self { train: &cell.train, device, stage, optimizer, scaler, updates: 0, total_updates }
    }

    /// What the gradient of the loss starts from; `None`: 1.
    pub fn scale(&self) -> Option<Tensor<1>> {
        self.scaler.as_ref().map(GradScaler::scale)
    }

    /// The gradients of a micro-batch by itself.
    pub fn gradients(&self, batch: &N::Batch) -> Gradients {
        gradients(self.stage.output(batch), self.scale())
    }

    /// Carries out the actions over a step's micro-batches. With `look` gradients are looked at before each
    /// update. Gives what the scaler reports of the last one, where there is a scaler.
    pub fn run(
        mut self,
        actions: &[Action],
        batches: &[N::Batch],
        end: &mut End,
        mut look: Option<&mut Look<'_, N>>,
    ) -> (Self, Option<Tensor<1>>) {
        let (mut sum, mut losses, mut report) = (GradientSet::default(), Vec::new(), None);
        // Backward holds on to the casts of one micro-batch by itself; those of a block that moves are
        // freed with it.
        let mut casts = (batches.len() > 1 && self.stage.network.offloaded().is_none()).then(keep_casts);
        for (i, action) in actions.iter().enumerate() {
            match *action {
                Action::Forward { stage, micro_batch } => {
                    let range = self.device.range(c"forward");
                    let loss = self.stage(stage).forward(micro_batch, &batches[micro_batch]);
                    drop(range);
                    losses.extend(self.train.sync_each_step.then(|| loss.clone()));
                    end(Phase::Forward, Some(loss));
                }
                Action::Backward { stage, micro_batch } => {
                    let range = self.device.range(c"backward");
                    if look.is_none() && actions.get(i + 1) == Some(&Action::Update) {
                        self.update_on_arrival();
                    }
                    let scale = self.scale();
                    let gradients = self.stage(stage).backward(micro_batch, scale);
                    sum.add(&self.stage.network, gradients);
                    self.stage.network.offloaded().inspect(|blocks| blocks.settle());
                    drop(range);
                    end(Phase::Backward, None);
                }
                Action::Update => {
                    drop(casts.take());
                    let range = self.device.range(c"optimizer");
                    (self, report) = self.update(std::mem::take(&mut sum), look.as_deref_mut());
                    drop(range);
                    end(Phase::Optimizer, None);
                }
            }
        }
        for loss in losses {
            // Data alone are read when they are looked at.
            let _: f32 = loss.into_scalar();
        }
        (self, report)
    }

    fn stage(&mut self, number: usize) -> &mut Stage<N> {
        assert_eq!(number, 0, "the whole network is one stage");
        &mut self.stage
    }

    /// The learning rate's factor in the update that comes.
    fn rate(&self) -> f64 {
        self.train.schedule.factor(self.updates + 1, self.total_updates)
    }

    /// The backward that comes is the last before its update. No update may use the norm of gradients that
    /// are still to come.
    fn update_on_arrival(&self) {
        if let (Some(blocks), None) = (self.stage.network.offloaded(), self.train.clip_norm) {
            blocks.update_on_arrival(Work::Step { rate: self.rate(), clip: 1.0 });
        }
    }

    fn update(mut self, sum: GradientSet, look: Option<&mut Look<'_, N>>) -> (Self, Option<Tensor<1>>) {
        let size = self.size(&sum);
        if let Some(look) = look {
            let (network, scale) = (&self.stage.network, self.scale());
            look(BeforeUpdate { network, gradients: &sum, size: &size, scale });
        }
        if let Some(blocks) = self.stage.network.offloaded() {
            blocks.update(&mut self.optimizer, &size);
            blocks.settle();
        }
        self.stage.network = self.optimizer.step(self.stage.network, sum, &size);
        self.stage.network.offloaded().inspect(|blocks| blocks.finish_updates());
        self.updates += 1;
        let report = self.scaler.as_mut().zip(size.applied).map(|(scaler, applied)| scaler.update(applied));
        (self, report)
    }

    /// How far the update goes that these gradients give.
    fn size(&self, sum: &GradientSet) -> StepSize {
        let size = StepSize { rate: self.rate(), ..StepSize::FULL };
        let others = || self.stage.network.offloaded().and_then(Blocks::squares);
        let squares = || sum.squares(others(), &self.device.burn());
        match (&self.scaler, self.train.clip_norm) {
            (None, None) => size,
            (None, Some(limit)) => StepSize { clip: Some(clip_factor(squares().sqrt(), limit)), ..size },
            (Some(scaler), limit) => {
                let Unscaled { factor, applied } = scaler.unscale(squares(), limit);
                StepSize { clip: Some(factor), applied: Some(applied), ..size }
            }
        }
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
