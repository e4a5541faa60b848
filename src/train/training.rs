//! [`Training`]: a network, its optimizer and its data, step by step.

mod observing;

use burn::tensor::{Gradients, Tensor};

use super::change::{Damage, RefillsEarly};
use crate::device::DeviceId;
use crate::measure::{Evaluation, Load, Meter, Phase};
use crate::model::{Network, Steps};
use crate::ops::autocast::autocast;
use crate::ops::checkpoint::differentiate;
use crate::optim::{StepSize, clip_factor};
use crate::params::named::Named;
use crate::precision::{GradScaler, Unscaled};
use crate::recipe::Cell;
use crate::residence::{Placement, Residence};

/// What a step has computed when its update comes.
pub struct BeforeUpdate<'s, N> {
    /// Its gradients are times the scale where there is one.
    pub residence: &'s mut Residence<N>,
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
    residence: Option<Residence<N>>,
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
            residence: None,
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
        self.residence = None;
        (self.updates, self.total_updates) = (0, total_updates);
        let plain = self.device.burn();
        self.scaler = cell.precision.scaler.map(|config| GradScaler::new(config, &plain));
        plain.seed(u64::from(cell.seed));
        let network = N::init(cell, &plain.autodiff());
        let parts = (network.parameters().clone(), network.offloaded().cloned());
        let (optimizer, clips) = (&cell.train.optimizer, cell.train.clip_norm.is_some());
        let residence = Residence::new(network, parts, optimizer, Placement::of(cell), clips);
        residence.make_room(self.largest_input());
        self.residence = Some(residence);
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
        self.residence.as_ref().expect("between steps").discard();
    }

    /// Makes what the optimizer keeps on the device, before the steps and after the preparation, whose
    /// trials of kernels want memory too.
    pub fn make_states(&mut self) {
        self.residence.as_mut().expect("between steps").make_states();
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
    pub fn parameters(&mut self) -> Named {
        self.residence.as_mut().expect("between steps").parameters()
    }

    /// Does the next step wrong.
    pub fn damage(&mut self, damage: Option<Damage>) {
        match damage {
            Some(Damage::DroppedMicroBatch) => drop(self.batches.pop()),
            Some(Damage::StaleSlot) => self.residence.as_ref().expect("between steps").follow(&RefillsEarly),
            Some(Damage::SkippedUpdate) | None => {}
        }
    }

    /// # Panics
    /// Within a step.
    pub fn network(&self) -> &N {
        self.residence.as_ref().expect("between steps").network()
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
        let mut residence = self.residence.take().expect("between steps");
        let train = &self.cell.train;
        self.updates += 1;
        let rate = train.schedule.factor(self.updates, self.total_updates);
        let mut losses = Vec::new();
        let casts = residence.keep_casts(self.batches.len());
        for (i, batch) in self.batches.iter().enumerate() {
            let range = self.device.range(c"forward");
            let loss = self.forward(residence.network(), batch);
            drop(range);
            end(Phase::Forward, Some(loss.clone().inner()));
            losses.extend(train.sync_each_step.then(|| loss.clone().inner()));
            let range = self.device.range(c"backward");
            // No update may use the norm of gradients that are still to come, nor take the place of those
            // that are looked at.
            if train.clip_norm.is_none() && i + 1 == self.batches.len() && look.is_none() {
                residence.update_on_arrival(rate);
            }
            // The loss holds the graph; freeing it belongs to backward.
            let gradients = self.backward(loss);
            residence.add(gradients);
            drop(range);
            end(Phase::Backward, None);
        }
        drop(casts);
        let range = self.device.range(c"optimizer");
        let size = self.step_size(&mut residence, rate);
        if let Some(look) = look {
            let scale = self.scaler.as_ref().map(GradScaler::scale);
            look(BeforeUpdate { residence: &mut residence, size: &size, scale });
        }
        residence.update(&size);
        self.residence = Some(residence);
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
    fn step_size(&self, residence: &mut Residence<N>, rate: f64) -> StepSize {
        let size = StepSize { rate, ..StepSize::FULL };
        let mut squares = || residence.squares();
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
        let seconds = self.residence.as_ref().expect("between steps").take_host_seconds();
        self.host_updates.extend(seconds.filter(|_| measured));
    }

    /// Evaluations, and seconds of the measured updates on the host.
    pub fn into_results(self) -> (Vec<Evaluation>, Vec<f64>) {
        (self.evaluations, self.host_updates)
    }
}
