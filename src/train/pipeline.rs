//! One cell, from its settings to its [`Measurement`]: preparation, warm-up, measured steps, evaluation.

use std::borrow::Cow;
use std::path::Path;

use super::build::Build;
use super::clock::Clock;
use super::outcome::{Outcome, measurement};
use super::ranks::together;
use super::saving::{BUILD, Progress, State, States, unwritten};
use super::step::share;
use super::training::Training;
use crate::measure::{Load, Loading, Measured, Measurement, Meter, Stop, diverged};
use crate::model::{Kind, on_model};
use crate::parallel::Groups;
use crate::params::save::{Saved, check_free};
use crate::precision::collapse;
use crate::recipe::{Cell, Folders};
use crate::words::refusal::refuse;
use crate::words::streams::tell;
use crate::words::{DeviceId, files::write_folder};
use crate::world::{Traffic, World};

/// Steps for whose numbers there is room before memory is counted. A longer run, such as one that its time limit ends, makes
/// room as it goes.
const MOST_NOTED: usize = 1 << 20;

/// Runs a rank's part of the warm-up and the measured steps of a cell, within `memory_limit` bytes of device memory.
/// [`Meter::prepare`] calls `on_tuned`. `on_step(done, of)` is called after each step. With `trace` one more step is
/// recorded, and the first rank writes it there as a Chrome trace.
///
/// # Errors
/// Says why the steps ended early.
pub fn train(
    cell: &Cell,
    world: &World,
    memory_limit: u64,
    trace: Option<&Path>,
    on_tuned: fn(usize),
    on_step: &mut dyn FnMut(usize, usize),
) -> Result<Measurement, Stop> {
    let outcome =
        on_model!(&cell.model, model => run(model, (cell, world), memory_limit, trace, on_tuned, on_step)?);
    let measurement = measurement(&cell.within(memory_limit), outcome);
    match measurement.not_finite() {
        None => Ok(measurement),
        Some(key) => Err(diverged(&format!("{key} of the measurement is not finite"))),
    }
}

fn run<K: Kind<Network: Build>>(
    _: &K,
    (cell, world): (&Cell, &World),
    memory_limit: u64,
    trace: Option<&Path>,
    on_tuned: fn(usize),
    on_step: &mut dyn FnMut(usize, usize),
) -> Result<Outcome, Stop> {
    let (id, placed) = (cell.device_id(), cell.within(memory_limit).of_micro_batches());
    // Before memory is counted: the corpus does not count as the cell's.
    let groups = Groups::of(world, &cell.parallel);
    let mut feed = K::Network::feed(&placed, share(&groups.replicas));
    let folders = Folders::of(cell).expect("checked with the cell");
    folders.check_free().unwrap_or_else(|e| refuse(e));
    let states = folders.state.map(|state| States::of(cell, state));
    let state = states.as_ref().and_then(|states| states.last().unwrap_or_else(|e| refuse(e)));
    if let Some(state) = &state {
        state.resume_feed(&mut *feed);
    }
    let start = state.as_ref().map_or(Cow::Borrowed(&placed), |state| Cow::Owned(state.cell(&placed)));
    let mut meter = id.meter();
    // Memory that one rank holds back would be missing to the others on the same GPU.
    let shared = id != DeviceId::Cpu && cell.parallel.ranks_on_device(id) > 1;
    let own = if shared { u64::MAX } else { memory_limit };
    let limit = || id.limit_memory(own).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"));
    // On a GPU the limit begins after the preparation, whose memory is not the cell's.
    let early = (id == DeviceId::Cpu).then(limit);

    let steps = cell.measure.steps.or_else(|| feed.of_epochs(cell.measure.epochs?));
    let steps = steps.expect("checked: there are steps, or epochs of samples");
    let total = cell.measure.warmup + steps;
    // In this order: memory is counted from the meter's on.
    let noted = total.min(MOST_NOTED);
    feed.reserve(noted);
    meter.reserve(noted);
    let mut training = Training::<K::Network>::among(&start, &groups, feed, total);
    on_step(0, total);
    training.prepare(&mut *meter, on_tuned);
    let _limit = early.unwrap_or_else(limit);
    training.make_states();
    let (sampled, warmup) = (cell.data.sampler().sampler.keeps_samples(), cell.measure.warmup);
    let (apart, updates) = if sampled { (warmup, steps) } else { (0, total) };
    let mut run = Run {
        cell,
        world,
        training,
        meter,
        on_step,
        done: 0,
        steps,
        apart,
        states,
        resumed: Vec::new(),
        unsaved: Vec::new(),
        traffic: Traffic::default(),
    };
    // The process of a resumed cell is cold too.
    if sampled || state.is_some() {
        run.warm_up_apart(updates)?;
    }
    let earlier_seconds = state.map_or(Ok(0.0), |state| run.resume(state))?;
    let run_seconds = run.steps(earlier_seconds)?;
    run.training.end_steps();
    if folders.weights.is_some() || folders.adapter.is_some() {
        run.training.gather();
        // All replicas have the same weights, and the rank of the first stage has gathered all of them.
        if groups.replicas.place() == 0 && groups.pipeline.place() == 0 {
            folders.weights.iter().for_each(|folder| run.save(folder, Saved::Weights, Training::write_model));
            folders
                .adapter
                .iter()
                .for_each(|folder| run.save(folder, Saved::Adapter, Training::write_adapter));
        }
        // The first rank may write for longer than ranks wait for each other.
        world.all().broadcast_when_ready("end of saving", 0, Vec::new()).wait();
    }

    let loading = sampled.then(|| run.loading(run_seconds));
    let Run { mut training, meter, states, resumed, unsaved, traffic, .. } = run;
    // Losses show the effect of updates; without updates only this norm shows what backward has computed.
    let proves = cell.train.mode.trains() && cell.train.optimizer.rule().is_none();
    let gradient_norm = if proves { training.gradient_norm() } else { None };
    // The row of a cell whose blocks move has what crossed the bus. A graph's has not: a recording shows launches.
    let crosses = cell.offload.moves() && id != DeviceId::Cpu && !cell.train.graph;
    // All ranks take the step, and the first writes its trace.
    let own = trace.filter(|_| world.rank() == 0);
    let mut crossings = if trace.is_some() || crosses { training.record(own) } else { Vec::new() };
    if cell.train.graph {
        crossings.clear();
    }
    let gradient_histogram = cell.measure.gradient_histogram.then(|| training.count_gradients());
    let mut measured = meter.finish(&|| training.loss())?;
    let ranks = together(world, &groups, &mut measured, traffic, training.of_stages());
    measured.losses.drain(..apart);
    measured.noted.drain(..apart.min(measured.noted.len()));
    let feature_distance =
        cell.eval.is_some_and(|eval| eval.feature_distance).then(|| training.feature_distance(&placed));
    let results = training.into_results();
    // A cell that could not save its weights can go on from its last state to save them.
    if let Some(Err(e)) = states.filter(|_| unsaved.is_empty()).map(|states| states.remove()) {
        tell(format!("the state of a finished cell cannot be removed: {e}"));
    }
    let measured = Measured { crossings, ..measured };
    Ok(Outcome {
        measured,
        results,
        feature_distance,
        run_seconds,
        loading,
        gradient_norm,
        gradient_histogram,
        resumed,
        unsaved,
        ranks,
    })
}

/// The steps of a prepared cell.
struct Run<'r, N: Build> {
    cell: &'r Cell,
    world: &'r World,
    training: Training<'r, N>,
    meter: Box<dyn Meter>,
    on_step: &'r mut dyn FnMut(usize, usize),
    /// Steps so far, warm-up included.
    done: usize,
    /// Measured steps.
    steps: usize,
    /// Steps of a warm-up that trains its own network.
    apart: usize,
    states: Option<States>,
    /// Steps after which the cell went on in another process.
    resumed: Vec<usize>,
    /// What could not be saved after the last step, and why.
    unsaved: Vec<String>,
    /// Traffic between ranks: at the first measured step, and at the end in all measured steps.
    traffic: Traffic,
}

impl<'r, N: Build> Run<'r, N> {
    /// Warms up on a network of its own, so that only measured steps consume samples. It trains on the largest batch, which
    /// needs the most memory. `updates`: of the training that follows.
    fn warm_up_apart(&mut self, updates: usize) -> Result<(), Stop> {
        for _ in 0..self.cell.measure.warmup {
            self.step(false)?;
        }
        self.training.begin(updates);
        self.training.make_states();
        Ok(())
    }

    /// Goes on from a state; returns the seconds of the measured steps before it.
    fn resume(&mut self, state: State) -> Result<f64, Stop> {
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
    fn save(
        &mut self,
        folder: &Path,
        saved: Saved,
        write: fn(&mut Training<'r, N>, &Path) -> std::io::Result<()>,
    ) {
        if self.world.rank() > 0 {
            return self.training.give_shares();
        }
        let overwrite = Folders::of(self.cell).is_ok_and(|folders| folders.overwrite);
        let free = check_free(folder, saved, overwrite).map_err(std::io::Error::other);
        let written = free.and_then(|()| write_folder(folder, |folder| write(&mut self.training, folder)));
        self.unsaved.extend(written.err().map(|e| {
            unwritten("the weights", folder, &e)
                + "; make room there and run again with --retry-failed, which trains and saves them again"
        }));
        self.training.end_shares();
    }

    /// Writes the state, if the cell has states. `run_seconds`: of the measured steps so far.
    fn save_state(&mut self, run_seconds: f64) -> Result<(), Stop> {
        let Some(states) = &self.states else { return Ok(()) };
        let measured = self.meter.so_far()?;
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
            refuse(format!("{why}; make room there or name another folder, and run again"))
        });
        Ok(())
    }

    /// Takes all steps that are left, with the evaluations; returns the seconds of the measured steps, including those of
    /// `earlier` processes.
    fn steps(&mut self, earlier: f64) -> Result<f64, Stop> {
        let device = self.cell.device_id().burn();
        let mut clock = Clock::new(&device);
        clock.seconds = earlier;
        let (start, warmup) = (self.done, self.cell.measure.warmup);
        for step in start..warmup + self.steps {
            if step == start.max(warmup) {
                clock.start();
                self.traffic = self.world.traffic();
            }
            self.training.load();
            let failed = |e| refuse(format!("the parameters cannot be kept for the next phase: {e}"));
            self.aside(&mut clock, |run, _| run.training.next_phase()).unwrap_or_else(failed);
            if step == self.apart {
                self.aside(&mut clock, |run, _| {
                    run.training.answer();
                    run.training.write();
                });
            }
            if self.training.evaluation_is_due(step == self.apart) {
                self.aside(&mut clock, |run, _| run.training.evaluate())?;
            }
            self.step(step >= warmup)?;
            let every = self.states.as_ref().map(|states| states.every);
            if every.is_some_and(|every| (step + 1 - self.apart).is_multiple_of(every)) {
                self.aside(&mut clock, Self::save_state)?;
            }
        }
        clock.stop();
        self.traffic = self.world.traffic() - self.traffic;
        if let Some(scaler) = &self.cell.precision.scaler {
            // A GPU's meter may still wait for the last step.
            let noted = self.meter.so_far()?.noted;
            // Steps apart are those of another network.
            let own = &noted[self.apart.min(noted.len())..];
            if let Some(reason) = collapse(scaler, own, true) {
                return Err(Stop::Diverged { reason });
            }
        }
        self.training.load();
        if self.training.evaluation_is_due(true) {
            self.training.evaluate()?;
        }
        // Without training the answers would be the same again.
        if self.cell.train.mode.trains() {
            self.training.answer();
            self.training.write();
        }
        Ok(clock.seconds)
    }

    /// Does what is no step: neither its time nor its messages are those of the measured steps.
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
        let Self { training, meter, .. } = self;
        meter.begin(measured);
        let end = &mut |phase, loss| {
            meter.end(phase);
            if let Some(loss) = loss {
                meter.loss(loss);
            }
        };
        let report = training.step(end, None);
        training.note_host_update(measured);
        report.into_iter().for_each(|numbers| meter.note(numbers));
        meter.pause();
        let stop = meter.stop().or_else(|| {
            let reason = collapse(self.cell.precision.scaler.as_ref()?, meter.noted(), false)?;
            Some(Stop::Diverged { reason })
        });
        if let Some(stop) = stop {
            return Err(stop);
        }
        self.done += 1;
        (self.on_step)(self.done, self.cell.measure.warmup + self.steps);
        Ok(())
    }

    /// The loading of the measured steps, and the sum of the squared lengths of their samples.
    fn loading(&self, run_seconds: f64) -> (Loading, f64) {
        let feed = self.training.feed();
        let loads: &[Load] = &feed.loads()[..self.steps];
        let loading = Loading { largest_batch: feed.largest(), ..Loading::new(run_seconds, loads) };
        (loading, loads.iter().map(|load| load.counts.squares as f64).sum())
    }
}
