//! [`Run`]: the steps of a prepared cell, with the evaluations and the states between them.

use std::path::Path;

use burn::tensor::Tensor;

use super::build::Build;
use super::clock::Clock;
use super::records::{Records, StepEnd};
use super::saving::{BUILD, Progress, State, States, unwritten};
use super::step::PhaseEnd;
use super::training::{Shares, Training};
use super::watch::Watch;
use crate::common::files::write_folder;
use crate::common::refusal::refuse;
use crate::measure::{Load, Loading, Meter, Stop};
use crate::params::save::{Saved, check_free};
use crate::precision::collapse;
use crate::recipe::{Cell, Folders};
use crate::world::{Traffic, World};

/// The steps of a prepared cell.
pub(super) struct Run<'r, N: Build> {
    pub cell: &'r Cell,
    pub world: &'r World,
    pub training: Training<'r, N>,
    pub meter: Box<dyn Meter>,
    pub watch: Watch<'r>,
    pub records: Records,
    /// Steps so far, warm-up included.
    pub done: usize,
    /// Measured steps.
    pub steps: usize,
    /// Steps of a warm-up that trains its own network.
    pub apart: usize,
    pub states: Option<States>,
    /// Steps after which the cell went on in another process.
    pub resumed: Vec<usize>,
    /// What could not be saved after the last step, and why.
    pub unsaved: Vec<String>,
    /// Traffic between ranks: at the first measured step, and at the end in all measured steps.
    pub traffic: Traffic,
}

impl<'r, N: Build> Run<'r, N> {
    /// Warms up on a network of its own, so that only measured steps consume samples. It trains on the largest batch, which
    /// needs the most memory. `updates`: of the training that follows.
    pub fn warm_up_apart(&mut self, updates: usize) -> Result<(), Stop> {
        for _ in 0..self.cell.measure.warmup {
            self.step(false)?;
            self.watch.step(self.done, self.total(), None);
        }
        self.training.begin(updates);
        self.training.make_states();
        Ok(())
    }

    /// Goes on from a state; returns the seconds of the measured steps before it.
    pub fn resume(&mut self, state: State) -> Result<f64, Stop> {
        let folder = state.folder.display();
        let failed = |e| format!("the state in {folder} cannot be read: {e}; remove it");
        state.restore(&mut self.training).map_err(failed).unwrap_or_else(|e| refuse(e));
        let Progress { done, run_seconds, measured, mut resumed, .. } = state.progress;
        resumed.push(done - self.apart);
        (self.done, self.resumed) = (done, resumed);
        // Losses of the warm-up may still be on their way; they do not count.
        self.meter.so_far()?;
        self.meter.resume(measured);
        Ok(run_seconds)
    }

    /// Saves weights, before recorded steps change them. The steps are measured already, so a full disk does not end the cell.
    pub fn save(
        &mut self,
        folder: &Path,
        (saved, shares): (Saved, &Shares),
        write: impl FnOnce(&mut Training<'r, N>, &Path) -> std::io::Result<()>,
    ) {
        if self.world.rank() > 0 {
            return self.training.give(shares);
        }
        let overwrite = Folders::of(self.cell).is_ok_and(|folders| folders.overwrite);
        let free = check_free(folder, saved, overwrite).map_err(std::io::Error::other);
        let written = free.and_then(|()| write_folder(folder, |folder| write(&mut self.training, folder)));
        self.unsaved.extend(written.err().map(|e| {
            unwritten("the weights", folder, &e)
                + "; make room there and run again with --retry-failed, which trains and saves them again"
        }));
        shares.end();
    }

    /// Writes the state, if the cell has states. `run_seconds`: of the measured steps so far.
    fn save_state(&mut self, run_seconds: f64) -> Result<(), Stop> {
        if self.states.is_none() {
            return Ok(());
        }
        let measured = self.meter.so_far()?;
        if self.records.is_waiting() {
            // A run that goes on from this state reports the steps behind it.
            self.tell();
        }
        let Some(states) = &self.states else { return Ok(()) };
        let progress = Progress {
            cell: states.cell.clone(),
            build: BUILD.into(),
            done: self.done,
            run_seconds,
            resumed: self.resumed.clone(),
            measured,
            standing: self.training.standing(),
        };
        let written = states.write(self.done - self.apart, &progress, &mut self.training);
        written.unwrap_or_else(|e| {
            let why = unwritten("the state", &states.folder, &e);
            refuse(format!(
                "{why}; make room there or name another folder, and run again with --retry-failed"
            ))
        });
        Ok(())
    }

    /// Takes all steps that are left, with the evaluations; returns the seconds of the measured steps, including those of
    /// `earlier` processes.
    pub fn steps(&mut self, earlier: f64) -> Result<f64, Stop> {
        let device = self.cell.device_id().burn();
        let mut clock = Clock::new(&device);
        clock.seconds = earlier;
        let (start, warmup) = (self.done, self.cell.measure.warmup);
        for step in start..self.total() {
            if step == start.max(warmup) {
                clock.start();
                self.traffic = self.world.traffic();
            }
            // Before the first step there is nothing new to save.
            if step > start && self.states.is_some() && self.watch.is_asked_to_stop() {
                self.aside(&mut clock, Self::save_state)?;
                return Err(Stop::Asked { step: step - self.apart });
            }
            let begun = clock.now();
            self.training.load();
            self.before_step(step, &mut clock)?;
            let rate = self.training.rate();
            self.step(step >= warmup)?;
            let seconds = (step >= warmup).then(|| clock.now() - begun);
            self.records.note(&StepEnd { step, rate, seconds, tokens: self.tokens(step) });
            self.tell();
            let every = self.states.as_ref().map(|states| states.every);
            if every.is_some_and(|every| (step + 1 - self.apart).is_multiple_of(every)) {
                self.aside(&mut clock, Self::save_state)?;
            }
        }
        clock.stop();
        self.traffic = self.world.traffic() - self.traffic;
        self.after_last_step()?;
        Ok(clock.seconds)
    }

    /// What is due before a step. Each of these waits for the device twice, so a step that needs none of them does not call
    /// `aside`.
    fn before_step(&mut self, step: usize, clock: &mut Clock) -> Result<(), Stop> {
        if self.training.enters_phase() {
            let failed = |e| refuse(format!("the parameters cannot be kept for the next phase: {e}"));
            self.aside(clock, |run, _| run.training.enter_phase()).unwrap_or_else(failed);
        }
        if step == self.apart {
            self.aside(clock, |run, _| {
                run.training.answer();
                run.training.write();
            });
        }
        match self.training.evaluation_is_due(step == self.apart) {
            true => self.aside(clock, |run, _| run.training.evaluate()),
            false => Ok(()),
        }
    }

    /// Reports the last step, and evaluates and answers once more.
    fn after_last_step(&mut self) -> Result<(), Stop> {
        if self.records.is_waiting() {
            // A GPU's meter may still wait for the last step.
            self.meter.so_far()?;
            self.tell();
        }
        if let Some(scaler) = &self.cell.precision.scaler {
            // A GPU's meter may still wait for the last step.
            let noted = self.meter.so_far()?.noted;
            // Steps apart are those of another network.
            let own = &noted[self.apart.min(noted.len())..];
            if let Some(reason) = collapse(scaler, own, true) {
                return Err(Stop::Diverged { reason });
            }
        }
        // What follows runs in the memory that a graph had.
        self.training.end_steps();
        self.training.load();
        if self.training.evaluation_is_due(true) {
            self.training.evaluate()?;
        }
        // Without training the answers would be the same again.
        if self.cell.train.mode.trains() {
            self.training.answer();
            self.training.write();
        }
        Ok(())
    }

    /// Does what is no step: neither its time nor its messages are those of the measured steps. Waits for the device before it
    /// and after it.
    fn aside<T>(&mut self, clock: &mut Clock, work: impl FnOnce(&mut Self, f64) -> T) -> T {
        clock.without(|seconds| {
            let before = self.world.traffic();
            let result = work(self, seconds);
            self.traffic = self.traffic + (self.world.traffic() - before);
            result
        })
    }

    /// Takes one step, which the meter follows.
    fn step(&mut self, measured: bool) -> Result<(), Stop> {
        let Self { training, meter, watch, .. } = self;
        meter.begin(measured);
        let end = &mut |ending: PhaseEnd, loss: Option<Tensor<1>>| {
            match ending {
                PhaseEnd::Phase(phase) => meter.end(phase),
                PhaseEnd::Graph(backward) => meter.end_graph(backward),
            }
            if let Some(loss) = loss {
                meter.loss(loss);
            }
        };
        let scale = watch.logged.then(|| training.scale()).flatten();
        let report = training.step(end, None);
        training.note_host_update(measured);
        let squares = watch.logged.then(|| training.squares()).flatten();
        let numbers = report.into_iter().chain(squares).chain(scale);
        if let Some(numbers) = numbers.reduce(|a, b| Tensor::cat(vec![a, b], 0)) {
            meter.note(numbers);
        }
        meter.pause();
        let stop = meter.stop().or_else(|| {
            let reason = collapse(self.cell.precision.scaler.as_ref()?, &meter.known().noted, false)?;
            Some(Stop::Diverged { reason })
        });
        if let Some(stop) = stop {
            return Err(stop);
        }
        self.done += 1;
        Ok(())
    }

    /// All steps, warm-up included.
    fn total(&self) -> usize {
        self.cell.measure.warmup + self.steps
    }

    /// Tokens of a step, without padding.
    fn tokens(&self, step: usize) -> u64 {
        let load = step.checked_sub(self.apart).and_then(|place| self.training.feed().loads().get(place));
        match load.filter(|_| self.cell.data.sampler().sampler.keeps_samples()) {
            Some(load) => load.counts.tokens,
            None => self.cell.train.tokens_of_a_step() as u64,
        }
    }

    /// Reports that a step is done, and the newest step whose loss is known.
    fn tell(&mut self) {
        let record = self.records.take(self.meter.known());
        self.watch.step(self.done, self.total(), record);
    }

    /// The loading of the measured steps, and the sum of the squared lengths of their samples.
    pub fn loading(&self, run_seconds: f64) -> (Loading, f64) {
        let feed = self.training.feed();
        let loads: &[Load] = &feed.loads()[..self.steps];
        let (largest_batch, texts) = (feed.largest(), feed.texts());
        let loading = Loading { largest_batch, texts, ..Loading::new(run_seconds, loads) };
        (loading, loads.iter().map(|load| load.counts.squares as f64).sum())
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
