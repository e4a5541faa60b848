//! [`Training`]: a network, its optimizer and its data, step by step.

mod observing;

use burn::tensor::{Gradients, Tensor};

use super::change::Damage;
use crate::device::DeviceId;
use crate::measure::{Evaluation, Load, Meter, Phase};
use crate::model::{Network, Steps};
use crate::ops::autocast::{autocast, keep_casts};
use crate::ops::checkpoint::differentiate;
use crate::optim::host::Work;
use crate::optim::{GradientSet, Optimizer, StepSize, clip_factor};
use crate::params::named::{self, Named};
use crate::precision::{GradScaler, Unscaled};
use crate::recipe::Cell;
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

pub struct Training<'a, N: Network> {
    cell: &'a Cell,
    device: DeviceId,
    /// `None` only while a step is under way.
    network: Option<N>,
    optimizer: Optimizer,
    scaler: Option<GradScaler>,
    data: Box<dyn Steps<N::Batch>>,
    /// The micro-batches of the step that is next.
    batches: Vec<N::Batch>,
    /// What evaluation reads.
    held_out: Vec<N::Batch>,
    /// Updates so far, and all of them.
    updates: usize,
    total_updates: usize,
    evaluations: Vec<Evaluation>,
    /// Seconds of the measured updates on the host.
    host_updates: Vec<f64>,
}

impl<'a, N: Network> Training<'a, N> {
    /// `total_updates`: what the schedule of the learning rate goes over.
    pub fn new(cell: &'a Cell, data: Box<dyn Steps<N::Batch>>, total_updates: usize) -> Self {
        let device = cell.device_id();
        let mut training = Self {
            cell,
            device,
            network: None,
            optimizer: Optimizer::None,
            scaler: None,
            data,
            batches: Vec::new(),
            held_out: Vec::new(),
            updates: 0,
            total_updates,
            evaluations: Vec::new(),
            host_updates: Vec::new(),
        };
        training.begin(total_updates);
        training
    }

    /// Makes the network, its optimizer and scaler, the same ones each time.
    pub fn begin(&mut self, total_updates: usize) {
        let cell = self.cell;
        // Two at a time would take twice the memory.
        self.network = None;
        self.optimizer = Optimizer::new(&cell.train.optimizer, cell.offload.optimizer, self.device);
        (self.updates, self.total_updates) = (0, total_updates);
        let plain = self.device.burn();
        self.scaler = cell.precision.scaler.map(|config| GradScaler::new(config, &plain));
        plain.seed(u64::from(cell.seed));
        let network = N::init(cell, &plain.autodiff());
        if let (Some(blocks), Some(_)) = (network.offloaded(), cell.train.clip_norm) {
            blocks.want_squares();
        }
        network.offloaded().inspect(|blocks| blocks.make_room(self.largest_input()));
        self.optimizer.adopt(&network, network.offloaded());
        self.network = Some(network);
    }

    /// Elements of a block's input, of the largest micro-batch.
    fn largest_input(&self) -> usize {
        let tokens = self.data.largest().map_or(self.cell.train.tokens(), |[rows, width]| rows * width);
        tokens * self.cell.model.decoder().map_or(0, |shape| shape.hidden_size)
    }

    /// Lets the device compile and tune for every shape of batch that comes. The largest is the next.
    pub fn prepare(&mut self, meter: &mut dyn Meter, told: fn(usize)) {
        let mut rehearsals = self.data.rehearsals().into_iter();
        self.batches = rehearsals.next().unwrap_or_else(|| self.data.next());
        meter.prepare(&|| self.rehearse(), told);
        for batches in rehearsals {
            let largest = std::mem::replace(&mut self.batches, batches);
            meter.compile(&|| self.rehearse());
            self.batches = largest;
        }
    }

    /// Forward and backward of the next step's first micro-batch, which leave nothing behind: no other
    /// rehearsal and no step adds to its gradients, nor finds them in the place of a block's weights.
    fn rehearse(&self) {
        drop(self.backward(self.loss()));
        self.network().offloaded().inspect(|blocks| blocks.discard_gradients());
    }

    /// Makes what the optimizer keeps on the device, before the steps and after the preparation, whose
    /// trials of kernels want memory too.
    pub fn make_states(&mut self) {
        let network = self.network.as_ref().expect("between steps");
        self.optimizer.make_states(network, network.offloaded());
    }

    /// Takes the next step's batches.
    pub fn load(&mut self) {
        self.batches = self.data.next();
    }

    /// What loading took so far, of data that follow it.
    pub fn loads(&self) -> Vec<Load> {
        self.data.loads().to_vec()
    }

    /// As [`Steps::largest`](crate::model::Steps::largest).
    pub fn largest(&self) -> Option<[usize; 2]> {
        self.data.largest()
    }

    /// Whether steps follow the samples of a text.
    pub fn follows_samples(&self) -> bool {
        self.data.of_epochs(1).is_some()
    }

    /// Every parameter by name, those of blocks on the host as well.
    pub fn parameters(&self) -> Named {
        let offloaded = self.network().offloaded().map(Blocks::parameters);
        named::parameters(self.network()).into_iter().chain(offloaded.into_iter().flatten()).collect()
    }

    /// Does the next step wrong.
    pub fn damage(&mut self, damage: Option<Damage>) {
        match damage {
            Some(Damage::DroppedMicroBatch) => drop(self.batches.pop()),
            Some(Damage::StaleSlot) => {
                self.network().offloaded().inspect(|blocks| blocks.refill_early());
            }
            Some(Damage::SkippedUpdate) | None => {}
        }
    }

    /// # Panics
    /// Within a step.
    pub fn network(&self) -> &N {
        self.network.as_ref().expect("between steps")
    }

    /// Of the next step's first micro-batch.
    pub fn loss(&self) -> Tensor<1> {
        self.forward(self.network(), &self.batches[0])
    }

    fn forward(&self, network: &N, batch: &N::Batch) -> Tensor<1> {
        let _region = autocast(self.cell.precision.region());
        network.loss(batch)
    }

    /// The gradients of the loss, times the scale where there is one.
    fn backward(&self, loss: Tensor<1>) -> Gradients {
        match &self.scaler {
            None => loss.backward(),
            Some(scaler) => differentiate(loss, scaler.scale()),
        }
    }

    /// Forward and backward of every micro-batch and the update; `end` hears of the end of each phase,
    /// and after a forward of its loss. Gives what the scaler tells of the step, where there is one.
    pub fn step(&mut self, end: &mut dyn FnMut(Phase, Option<Tensor<1>>)) -> Option<Tensor<1>> {
        self.observed_step(end, None)
    }

    /// A [`step`](Self::step) whose gradients are looked at before the update.
    pub fn observed_step(
        &mut self,
        end: &mut dyn FnMut(Phase, Option<Tensor<1>>),
        look: Option<&mut Look<'_, N>>,
    ) -> Option<Tensor<1>> {
        let network = self.network.take().expect("between steps");
        let train = &self.cell.train;
        self.updates += 1;
        let rate = train.schedule.factor(self.updates, self.total_updates);
        let mut sum = GradientSet::default();
        let mut losses = Vec::new();
        // Backward holds on to the casts of one micro-batch by itself; those of a block that moves are
        // freed with it.
        let casts = (self.batches.len() > 1 && network.offloaded().is_none()).then(keep_casts);
        for (i, batch) in self.batches.iter().enumerate() {
            let range = self.device.range(c"forward");
            let loss = self.forward(&network, batch);
            drop(range);
            end(Phase::Forward, Some(loss.clone().inner()));
            losses.extend(train.sync_each_step.then(|| loss.clone().inner()));
            let range = self.device.range(c"backward");
            // No update may use the norm of gradients that are still to come, nor take the place of those
            // that are looked at.
            if let (Some(blocks), None) = (network.offloaded(), train.clip_norm)
                && i + 1 == self.batches.len()
                && look.is_none()
            {
                blocks.update_on_arrival(Work::Step { rate, clip: 1.0 });
            }
            // The loss holds the graph; freeing it belongs to backward.
            let gradients = self.backward(loss);
            sum.add(&network, gradients);
            network.offloaded().inspect(|blocks| blocks.settle());
            drop(range);
            end(Phase::Backward, None);
        }
        drop(casts);
        let range = self.device.range(c"optimizer");
        let size = self.step_size(&network, &sum, rate);
        if let Some(look) = look {
            let scale = self.scaler.as_ref().map(GradScaler::scale);
            look(BeforeUpdate { network: &network, gradients: &sum, size: &size, scale });
        }
        if let Some(blocks) = network.offloaded() {
            blocks.update(&mut self.optimizer, &size);
            blocks.settle();
        }
        let network = self.optimizer.step(network, sum, &size);
        network.offloaded().inspect(|blocks| blocks.finish_updates());
        self.network = Some(network);
        let told = self.scaler.as_mut().zip(size.applied).map(|(scaler, applied)| scaler.update(applied));
        drop(range);
        end(Phase::Optimizer, None);
        for loss in losses {
            // Data alone are read when they are looked at.
            let _: f32 = loss.into_scalar();
        }
        told
    }

    /// How far the update goes that these gradients give.
    fn step_size(&self, network: &N, sum: &GradientSet, rate: f64) -> StepSize {
        let size = StepSize { rate, ..StepSize::FULL };
        let squares = || sum.squares(network.offloaded().and_then(Blocks::squares), &self.device.burn());
        match (&self.scaler, self.cell.train.clip_norm) {
            (None, None) => size,
            (None, Some(limit)) => StepSize { clip: Some(clip_factor(squares().sqrt(), limit)), ..size },
            (Some(scaler), limit) => {
                let Unscaled { factor, applied } = scaler.unscale(squares(), limit);
                StepSize { clip: Some(factor), applied: Some(applied), ..size }
            }
        }
    }

    /// Keeps what the last update took on the host, of a measured step.
    pub fn note_host_update(&mut self, measured: bool) {
        let seconds = self.optimizer.take_host_seconds();
        self.host_updates.extend(seconds.filter(|_| measured));
    }

    /// Evaluations, and seconds of the measured updates on the host.
    pub fn into_results(self) -> (Vec<Evaluation>, Vec<f64>) {
        (self.evaluations, self.host_updates)
    }
}
