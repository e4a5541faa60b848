//! [`Training`]: a cell's network and data, step by step.

mod answering;
mod beside;
mod flipped;
mod observing;
mod saved;
mod shares;

use std::io;
use std::sync::Arc;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub use saved::Standing;
pub use shares::Shares;

use super::build::Build;
use super::change::{Damage, RefillsEarly};
use super::feed::Feed;
use super::step::{End, Look, Step};
use crate::measure::{Answers, Continuation, Evaluation, Meter, Span, StageTime};
use crate::parallel::schedule::Action;
use crate::parallel::{Groups, whole};
use crate::params::named::{Named, wide};
use crate::params::table::Entry;
use crate::recipe::Cell;

/// What training yields besides weights, losses and times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub evaluations: Vec<Evaluation>,
    pub answers: Vec<Answers>,
    pub continuations: Vec<Continuation>,
    /// Seconds of the measured updates on the host.
    pub host_updates: Vec<f64>,
    /// How forward and backward ran, if they were to be recorded; known at the end.
    #[serde(skip)]
    pub graph: Option<String>,
    /// See [`Training::repeated_text`]; known at the end.
    #[serde(skip)]
    pub evaluation: Option<String>,
}

pub struct Training<'a, N: Build> {
    cell: &'a Cell,
    groups: Groups,
    /// `None` only while it is made again.
    step: Option<Step<'a, N>>,
    /// Length of the learning-rate schedule.
    total_updates: usize,
    feed: Box<dyn Feed<N::Batch>>,
    /// The micro-batches of the next step.
    batches: Vec<N::Batch>,
    /// The batches of an evaluation.
    held_out: Vec<N::Batch>,
    results: Results,
}

impl<'a, N: Build> Training<'a, N> {
    /// In one process. `total_updates`: the length of the learning-rate schedule.
    pub fn new(cell: &'a Cell, feed: Box<dyn Feed<N::Batch>>, total_updates: usize) -> Self {
        Self::among(cell, &Groups::alone(), feed, total_updates)
    }

    /// On one of several ranks. `feed` gives the share of its replica of every batch.
    pub fn among(
        cell: &'a Cell,
        groups: &Groups,
        feed: Box<dyn Feed<N::Batch>>,
        total_updates: usize,
    ) -> Self {
        let mut training = Self {
            cell,
            groups: groups.clone(),
            step: None,
            total_updates,
            feed,
            batches: Vec::new(),
            held_out: Vec::new(),
            results: Results::default(),
        };
        // The device prepares for the last phase, which needs the most memory.
        training.make(cell, usize::MAX);
        training
    }

    /// Starts again with the same weights.
    pub fn begin(&mut self, total_updates: usize) {
        self.total_updates = total_updates;
        self.make(self.cell, 0);
    }

    /// Makes the step of the cell as it trains after `updates` updates.
    fn make(&mut self, cell: &Cell, updates: usize) {
        // Two networks at once would take twice the memory.
        self.step = None;
        let virtual_tokens = self.cell.tuning().virtual_count();
        let tokens = self.feed.largest().map_or(self.cell.train.tokens(), |[rows, width]| rows * width)
            + self.cell.train.batch_size * virtual_tokens;
        let largest_input = tokens * self.cell.model.decoder().map_or(0, |shape| shape.hidden_size);
        let tuned = cell.after(updates);
        self.step = Some(Step::new(self.cell, &tuned, &self.groups, self.total_updates, largest_input));
    }

    fn current(&self) -> &Step<'a, N> {
        self.step.as_ref().expect("begun")
    }

    pub fn network(&self) -> &N {
        self.current().stage.residence.network()
    }

    /// Draws random problems at once, so that they come right behind the weights.
    pub fn draw(&mut self) {
        drop(self.feed.rehearsals());
    }

    /// Lets the device compile and tune for every shape of batch. The largest becomes the next batch.
    pub fn prepare(&mut self, meter: &mut dyn Meter, on_tuned: fn(usize)) {
        let mut rehearsals = self.feed.rehearsals().into_iter();
        self.batches = rehearsals.next().expect("a feed has a largest step");
        meter.prepare(&|| self.current().rehearse(&self.batches[0]), on_tuned);
        for batches in rehearsals {
            meter.compile(&|| self.current().rehearse(&batches[0]));
        }
        self.step.as_mut().expect("begun").profile(&self.batches[0]);
    }

    /// Makes the optimizer's state on the device: before the steps, and after the preparation, whose trials of kernels need
    /// memory too.
    pub fn make_states(&mut self) {
        self.step.as_mut().expect("begun").stage.residence.make_states();
    }

    /// Loads the batches of the next step.
    pub fn load(&mut self) {
        self.batches = self.feed.next();
    }

    pub fn feed(&self) -> &dyn Feed<N::Batch> {
        &*self.feed
    }

    /// Every parameter by name, whole, wherever it lives.
    pub fn parameters(&mut self) -> Named {
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let table = residence.table().clone();
        let of = |entry: &Entry| {
            let value = whole(entry, residence.dense(&entry.name), &self.groups.tensor);
            (entry.name.clone(), wide(value))
        };
        table.entries.iter().map(of).collect()
    }

    /// Puts a fault into the next step.
    pub fn damage(&mut self, damage: Option<Damage>) {
        match damage {
            Some(Damage::DroppedMicroBatch) => drop(self.batches.pop()),
            Some(Damage::StaleSlot) => self.current().stage.residence.follow(Arc::new(RefillsEarly)),
            Some(Damage::SkippedUpdate | Damage::FlippedBit) | None => {}
        }
    }

    /// Whether another phase of a tuning method begins with the next step.
    pub fn enters_phase(&self) -> bool {
        let updates = self.current().updates;
        let phase = |updates| self.cell.tuning.phase(updates);
        updates.checked_sub(1).is_some_and(|before| phase(before) != phase(updates))
    }

    /// Enters the phase that begins with the next step: the parameters stay and pass through a folder, the optimizer is new.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn enter_phase(&mut self) -> io::Result<()> {
        let updates = self.current().updates;
        let folder = tempfile::tempdir()?;
        self.write_weights(folder.path())?;
        let mut cell = self.cell.clone();
        cell.model.load_from(folder.path().to_path_buf());
        self.make(&cell, updates);
        self.step.as_mut().expect("made").updates = updates;
        self.make_states();
        Ok(())
    }

    /// The loss of the next step's first micro-batch.
    pub fn loss(&self) -> Tensor<1> {
        self.current().loss(&self.batches[0])
    }

    /// One step: the schedule's actions for all micro-batches and the update, as [`Step::run`].
    pub fn step(&mut self, end: &mut End, look: Option<&mut Look<'_, N>>) -> Option<Tensor<1>> {
        let actions = self.actions();
        self.step.as_mut().expect("begun").run(&actions, &self.batches, end, look)
    }

    fn actions(&self) -> Vec<Action> {
        (self.cell.train.mode.schedule().actions)(self.batches.len())
    }

    /// What the schedule makes of the next update's learning rate, as a factor.
    pub fn rate(&self) -> f64 {
        self.current().rate()
    }

    /// As [`Step::scale`].
    pub fn scale(&self) -> Option<Tensor<1>> {
        self.current().scale()
    }

    /// As [`Step::squares`].
    pub fn squares(&self) -> Option<Tensor<1>> {
        self.current().squares()
    }

    /// The norm over all gradients of one more step; `None` if it is not finite.
    pub fn gradient_norm(&mut self) -> Option<f64> {
        let actions = self.actions();
        let norm = self.step.as_mut().expect("begun").gradient_norm(&actions, &self.batches);
        Some(norm).filter(|norm| norm.is_finite())
    }

    /// The times of a pipeline's stages, and what this rank did in the last step.
    pub fn of_stages(&self) -> (Vec<StageTime>, Vec<Span>) {
        let recorder = self.current().stages.as_ref().map(|stages| &stages.recorder);
        recorder.map_or_else(Default::default, |recorder| (recorder.times.clone(), recorder.spans()))
    }

    /// Notes the seconds of the last update on the host, if its step is measured and was not skipped.
    pub fn note_host_update(&mut self, measured: bool) {
        let seconds = self.current().stage.residence.take_host_seconds();
        self.results.host_updates.extend(seconds.filter(|seconds| measured && *seconds > 0.0));
    }

    /// Ends the steps that are measured. What follows runs by launches.
    pub fn end_steps(&mut self) {
        if let Some(step) = &mut self.step {
            step.forget_graph();
        }
    }

    pub fn into_results(self) -> Results {
        let (graph, evaluation) = (self.current().graph_path(), self.repeated_text());
        Results { graph, evaluation, ..self.results }
    }
}
