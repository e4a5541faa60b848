//! [`Step`]: carries out the actions of a schedule with a network, its optimizer and its scaler.

mod phase_end;
mod recorded;
mod stages;
mod update;

use burn::tensor::{DType, Gradients, Tensor};

use super::build::{Build, placement, sharding};
use crate::common::DeviceId;
use crate::data::Share;
use crate::device::drawing;
use crate::measure::Phase;
use crate::model::Parts;
use crate::ops::dropout::{Masks, masks, of_micro_batch};
use crate::ops::name::OperatorName;
use crate::optim::{FixedSums, Kept, StepSize, Visit};
use crate::parallel::schedule::Action;
use crate::parallel::stage::{Stage, gradients};
use crate::parallel::{Division, Groups, Replicas, Stages, TensorRanks};
use crate::precision::GradScaler;
use crate::recipe::{Cell, Clip, Mode, Train};
use crate::residence::Residence;
use crate::world::ProcessGroup;
pub use phase_end::{End, PhaseEnd};
use recorded::Recording;

/// What a step has computed before its update.
pub struct BeforeUpdate<'s, N> {
    /// Its gradients are multiplied by the scale, if there is one.
    pub residence: &'s mut Residence<N>,
    pub size: &'s StepSize,
    /// The scale of the loss, [1] in fp32; `None`: 1.
    pub scale: Option<Tensor<1>>,
}

/// Looks at what a step has computed.
pub type Look<'l, N> = dyn FnMut(BeforeUpdate<'_, N>) + 'l;

/// All that a step changes.
pub struct Step<'a, N: Build> {
    train: &'a Train,
    /// Seed of the masks of dropout.
    seed: u32,
    device: DeviceId,
    pub stage: Stage<N>,
    /// `None` if there is one replica, or the residence sums gradients.
    replicas: Option<Replicas>,
    /// Present on a rank of a pipeline.
    pub stages: Option<Stages<N>>,
    /// `None` if this rank has whole layers.
    tensor: Option<TensorRanks>,
    /// This rank's share of each batch.
    share: Share,
    scaler: Option<GradScaler>,
    /// Σ g² over all gradients of the last step that wanted their norm, [1] in fp32; 0 before the first.
    squares: Tensor<1>,
    /// Whether the norm is computed even if no update needs it.
    measures_norm: bool,
    keeps_casts: bool,
    recording: Recording,
    /// Sums of gradients in fixed places, for a graph of several micro-batches; made in the first step.
    sums: Option<FixedSums>,
    /// Updates so far, and in all.
    pub updates: usize,
    total_updates: usize,
}

/// The share of each batch that this replica computes.
pub fn share(replicas: &ProcessGroup) -> Share {
    Share { place: replicas.place(), of: replicas.size() }
}

impl<'a, N: Build> Step<'a, N> {
    /// Makes network, optimizer and scaler, each time with the same values. `tuned`: the cell in its phase of tuning.
    /// `total_updates`: steps of the learning-rate schedule. `largest_input`: most elements of a block's input.
    pub fn new(
        cell: &'a Cell,
        tuned: &Cell,
        groups: &Groups,
        total_updates: usize,
        largest_input: usize,
    ) -> Self {
        let device = cell.device_id();
        let plain = device.burn();
        let scaler = cell.precision.scaler.map(|config| GradScaler::new(config, &plain));
        let division = cell.division();
        let parts = division.as_ref().map_or(Parts::Whole, |division| division.parts(groups.pipeline.rank()));
        let drawing = drawing();
        plain.seed(u64::from(cell.seed));
        let network = match cell.train.mode {
            Mode::Training => N::build(tuned, groups, parts),
            // Outside of autodiff operators keep nothing.
            Mode::Inference => N::build(tuned, groups, parts).valid(),
        };
        drop(drawing);
        let parts = (network.parameters().clone(), network.offloaded().cloned());
        let (optimizer, needs_squares) = (&cell.train.optimizer, cell.needs_norm());
        let sharding = sharding(cell, groups);
        let home = (placement(cell), sharding.as_ref());
        let residence = Residence::new(network, parts, optimizer, home, needs_squares);
        residence.make_room(largest_input);
        let stage = Stage::new(residence, cell.precision.region());
        let (seed, keeps_casts) = (cell.seed, cell.workload().keeps_casts());
        // If ranks divide gradients, the residence sums them.
        let replicas =
            Replicas::of(&groups.replicas, cell.parallel.data_reduce).filter(|_| sharding.is_none());
        let tensor = TensorRanks::of(&groups.tensor, stage.residence.table(), &plain);
        let share = share(&groups.replicas);
        let updates_a_step = division.as_ref().map_or(1, Division::updates);
        let stages = division.map(|division| Stages::new(division, &groups.pipeline, device));
        Self {
            train: &cell.train,
            seed,
            device,
            stage,
            replicas,
            stages,
            tensor,
            share,
            scaler,
            squares: Tensor::zeros([1], (&plain, DType::F32)),
            measures_norm: false,
            keeps_casts,
            recording: if cell.train.graph { Recording::First } else { Recording::Off },
            sums: None,
            updates: 0,
            total_updates: total_updates * updates_a_step,
        }
    }

    /// Visits the state of optimizer and scaler.
    pub fn visit(&mut self, visit: &mut Visit) {
        self.stage.residence.visit_states(visit);
        self.scaler.iter_mut().for_each(|scaler| scaler.visit(visit));
        if self.train.clip == Clip::PreviousNorm {
            visit("clip.previous_squares", Kept::Tensor(&mut self.squares));
        }
    }

    /// The gradient of the loss that backward starts from; `None`: 1.
    pub fn scale(&self) -> Option<Tensor<1>> {
        self.scaler.as_ref().map(GradScaler::scale)
    }

    /// The gradients of one micro-batch.
    pub fn gradients(&self, batch: &N::Batch) -> Gradients {
        let _masks = self.masks(0);
        gradients(self.stage.output(batch), self.scale())
    }

    /// Carries out a step that updates nothing; returns the norm over all of its gradients.
    pub fn gradient_norm(&mut self, actions: &[Action], batches: &[N::Batch]) -> f64 {
        self.measure_norm(true);
        self.run(actions, batches, &mut |_, _| {}, None);
        self.measure_norm(false);
        f64::from(self.squares.clone().into_scalar::<f32>()).sqrt()
    }

    /// Steps that are measured or recorded do not add up squares that none of their updates needs.
    fn measure_norm(&mut self, measures: bool) {
        self.stage.residence.want_squares(measures);
        self.measures_norm = measures;
    }

    /// Computes forward and backward of a micro-batch and leaves nothing behind: no later step adds to its gradients, or
    /// finds them in the place of a block's weights.
    pub fn rehearse(&self, batch: &N::Batch) {
        let _masks = self.masks(0);
        match (&self.stages, self.train.mode) {
            (Some(stages), _) => stages.rehearse(self.stage.residence.network(), batch),
            (None, Mode::Training) => drop(self.gradients(batch)),
            (None, Mode::Inference) => drop(self.stage.output(batch)),
        }
        self.stage.residence.discard();
    }

    /// The dropout masks of a micro-batch of the next step.
    fn masks(&self, micro_batch: usize) -> Masks {
        // Each replica drops other elements.
        let micro_batch = micro_batch * self.share.of + self.share.place;
        masks(Some(of_micro_batch(self.seed, self.updates, micro_batch)))
    }

    /// Carries out the actions over the micro-batches of a step. `look` sees the gradients before each update. Returns what
    /// the scaler reports of the last update, if there is a scaler.
    pub fn run(
        &mut self,
        actions: &[Action],
        batches: &[N::Batch],
        end: &mut End,
        mut look: Option<&mut Look<'_, N>>,
    ) -> Option<Tensor<1>> {
        if self.stages.is_some() {
            return self.run_stages(batches, end);
        }
        let (mut losses, mut report) = (Vec::new(), None);
        let sums = self.begin_sums(batches);
        // After a graph only the update is left.
        let replayed = self.train.graph && look.is_none() && self.replay(batches, end);
        let done = if replayed { actions.len() - 1 } else { 0 };
        let mut casts = (self.keeps_casts && done == 0).then(|| self.stage.residence.keep_casts());
        for (i, action) in actions.iter().enumerate().skip(done) {
            match *action {
                Action::Forward { stage, micro_batch } => {
                    let last = actions
                        .windows(2)
                        .any(|pair| pair == [Action::Backward { stage, micro_batch }, Action::Update]);
                    let loss = self.forward(micro_batch, &batches[micro_batch], last, sums.as_ref());
                    losses.extend(self.train.sync_each_step.then(|| loss.clone()));
                    end(PhaseEnd::Phase(Phase::Forward), Some(loss));
                }
                // Without masks: inference has no dropout.
                Action::Infer { micro_batch, .. } => {
                    let range = self.device.range(c"forward");
                    let loss = self.stage.output(&batches[micro_batch]).inner();
                    drop(range);
                    losses.extend(self.train.sync_each_step.then(|| loss.clone()));
                    end(PhaseEnd::Phase(Phase::Forward), Some(loss));
                }
                Action::Backward { micro_batch, .. } => {
                    let last = actions.get(i + 1) == Some(&Action::Update);
                    self.backward(micro_batch, last, look.is_some(), sums.as_ref());
                    end(PhaseEnd::Phase(Phase::Backward), None);
                }
                Action::Send(_) | Action::Receive(_) => unreachable!("one stage sends nothing"),
                Action::Update => {
                    drop(casts.take());
                    let range = self.device.range(c"optimizer");
                    report = self.update(look.as_deref_mut());
                    drop(range);
                    end(PhaseEnd::Phase(Phase::Optimizer), None);
                }
            }
        }
        read(losses);
        report
    }

    /// The loss of a micro-batch. `last`: whether the update follows its backward.
    fn forward(
        &mut self,
        micro_batch: usize,
        batch: &N::Batch,
        last: bool,
        sums: Option<&FixedSums>,
    ) -> Tensor<1> {
        let (_range, _masks) = (self.device.range(c"forward"), self.masks(micro_batch));
        let of_replicas = || self.replicas.as_ref().filter(|_| last).and_then(Replicas::gates);
        let gates = self.stage.residence.gates(last).or_else(of_replicas);
        let _gates = gates.or_else(|| sums.map(FixedSums::gates));
        self.stage.forward(micro_batch, batch)
    }

    /// Adds the gradients of a micro-batch. `looks`: whether they are seen before the update.
    fn backward(&mut self, micro_batch: usize, last: bool, looks: bool, sums: Option<&FixedSums>) {
        let _range = self.device.range(c"backward");
        if last && !looks {
            self.update_on_arrival();
        }
        if let Some(replicas) = self.replicas.as_ref().filter(|_| last) {
            replicas.begin(std::mem::take(self.stage.residence.gradient_set()));
        }
        let scale = self.scale();
        let gradients = self.stage.backward(micro_batch, scale);
        let _scope = OperatorName::GradientSums.scope();
        let residence = &mut self.stage.residence;
        match (self.replicas.as_ref().filter(|_| last), sums) {
            (None, None) => residence.add(gradients),
            (None, Some(sums)) => {
                sums.add(residence.network(), gradients);
                *residence.gradient_set() = sums.set(residence.network());
            }
            (Some(replicas), _) => {
                replicas.end(residence.network(), gradients);
                // Otherwise the update waits for one sum after the other.
                if looks || self.wants_norm() {
                    self.take_sums();
                }
            }
        }
        if last {
            self.stage.residence.sum_over_ranks();
        }
    }
}

/// Waits until the device has computed these losses.
fn read(losses: Vec<Tensor<1>>) {
    losses.into_iter().for_each(|loss| _ = loss.into_scalar::<f32>());
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
