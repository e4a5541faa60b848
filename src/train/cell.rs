//! One cell, from its settings to its [`Measurement`]: preparation, steps, what is saved and what is measured after them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::build::Build;
use super::feed::Feed;
use super::outcome::{Outcome, measurement};
use super::ranks::together;
use super::records::Records;
use super::saving::{State, States};
use super::step::share;
use super::steps::Run;
use super::training::Training;
use super::watch::Watch;
use crate::common::DeviceId;
use crate::common::refusal::refuse;
use crate::device::MemoryLimit;
use crate::measure::{Crossing, Loading, Measured, Measurement, Stop, diverged};
use crate::model::Model;
use crate::model::language::Decoder;
use crate::model::swiglu::SwigluStack;
use crate::parallel::Groups;
use crate::params::hub;
use crate::params::save::Saved;
use crate::recipe::{Cell, Folders};
use crate::world::{Traffic, World};

/// Steps for whose numbers there is room before memory is counted. A longer run, such as one that its time limit ends, makes
/// room as it goes.
const MOST_NOTED: usize = 1 << 20;

/// Runs a rank's part of the warm-up and the measured steps of a cell, within `memory_limit` bytes of device memory.
/// [`Meter::prepare`] calls the watch's `on_tuned`. With a `trace` one more step is recorded, and the first rank writes it
/// there as a Chrome trace.
///
/// # Errors
/// Says why the steps ended early.
pub fn train(cell: &Cell, world: &World, memory_limit: u64, watch: Watch<'_>) -> Result<Measurement, Stop> {
    let run = match cell.model {
        Model::Swiglu(_) => run::<SwigluStack>,
        Model::Language(_) => run::<Decoder>,
    };
    let outcome = run((cell, world), memory_limit, watch)?;
    let measurement = measurement(&cell.within(memory_limit), outcome);
    match measurement.not_finite() {
        None => Ok(measurement),
        Some(key) => Err(diverged(&format!("{key} of the measurement is not finite"))),
    }
}

/// Trains a cell in one process, without a limit, with nobody to follow it. `trace`, `logged`: as in [`Watch`].
///
/// # Errors
/// As [`train`].
pub fn train_alone(cell: &Cell, trace: Option<&Path>, logged: bool) -> Result<Measurement, Stop> {
    let stop = AtomicBool::new(false);
    let watch = Watch { trace, logged, on_tuned: |_| (), on_step: &mut |_| (), stop: &stop };
    train(cell, &World::alone(), u64::MAX, watch)
}

fn run<N: Build>(
    (cell, world): (&Cell, &World),
    memory_limit: u64,
    mut watch: Watch<'_>,
) -> Result<Outcome, Stop> {
    let (id, placed) = (cell.device_id(), cell.within(memory_limit).of_micro_batches());
    // Before memory is counted: the corpus does not count as the cell's.
    let groups = Groups::of(world, &cell.parallel);
    let begun = Instant::now();
    let mut feed = N::feed(&placed, share(&groups.replicas));
    let data_seconds = begun.elapsed().as_secs_f64();
    let folders = Folders::of(cell).expect("checked with the cell");
    let (states, state) = last_state(cell, &folders);
    if let Some(state) = &state {
        state.resume_feed(&mut *feed);
    }
    let start = state.as_ref().map_or(Cow::Borrowed(&placed), |state| Cow::Owned(state.cell(&placed)));
    let mut meter = id.meter();
    let limit = || limit_memory(cell, memory_limit);
    // On a GPU the limit begins after the preparation, whose memory is not the cell's.
    let early = (id == DeviceId::Cpu).then(limit);

    let (sampled, warmup) = (cell.data.sampler().sampler.keeps_samples(), cell.measure.warmup);
    let steps = measured_steps(cell, &*feed, sampled);
    let total = warmup + steps;
    // In this order: memory is counted from the meter's on.
    let noted = total.min(MOST_NOTED);
    feed.reserve(noted);
    let (apart, updates) = if sampled { (warmup, steps) } else { (0, total) };
    let records = Records::new(cell, &groups, watch.logged, apart);
    meter.reserve(noted);
    let begun = Instant::now();
    let mut training = Training::<N>::among(&start, &groups, feed, total);
    let begin_seconds = [data_seconds, begun.elapsed().as_secs_f64()];
    watch.step(0, total, None);
    training.prepare(&mut *meter, watch.on_tuned);
    let limit = early.unwrap_or_else(limit);
    training.make_states();
    let mut run = Run {
        cell,
        world,
        training,
        meter,
        records,
        watch: watch.borrowed(),
        done: 0,
        steps,
        apart,
        states,
        resumed: Vec::new(),
        unsaved: Vec::new(),
        traffic: Traffic::default(),
    };
    let run_seconds = take_steps(&mut run, state, sampled, updates)?;
    // It is that of the steps: what is observed behind them loses no measured cell.
    drop(limit);
    save_trained(&mut run, &folders, &groups);
    let loading = sampled.then(|| run.loading(run_seconds));
    Ok(Outcome { begin_seconds, ..finished(run, (&placed, &groups), run_seconds, loading)? })
}

/// As many as the recipe has, or its epochs of the text. The warm-up sees blocks of the first epoch, but no samples.
fn measured_steps<B>(cell: &Cell, feed: &dyn Feed<B>, sampled: bool) -> usize {
    let seen = if sampled { 0 } else { cell.measure.warmup };
    let of_epochs = || Some(feed.of_epochs(cell.measure.epochs?)?.saturating_sub(seen).max(1));
    cell.measure.steps.or_else(of_epochs).expect("checked: there are steps, or epochs of a text")
}

/// Takes the steps that are left after `state`; the seconds of all. `apart`: the warm-up trains a network of its own.
fn take_steps<N: Build>(
    run: &mut Run<'_, N>,
    state: Option<State>,
    apart: bool,
    updates: usize,
) -> Result<f64, Stop> {
    // The process of a resumed cell is cold too.
    if apart || state.is_some() {
        run.warm_up_apart(updates)?;
    }
    let earlier_seconds = state.map_or(Ok(0.0), |state| run.resume(state))?;
    run.steps(earlier_seconds)
}

/// The states of a cell, and the last one, from which it goes on.
fn last_state(cell: &Cell, folders: &Folders) -> (Option<States>, Option<State>) {
    folders.check_free().unwrap_or_else(|e| refuse(e));
    let states = folders.state.clone().map(|state| States::of(cell, state));
    let last = states.as_ref().and_then(|states| states.last().unwrap_or_else(|e| refuse(e)));
    (states, last)
}

/// Limits the memory of this rank's device to so many bytes until the result is dropped.
fn limit_memory(cell: &Cell, bytes: u64) -> MemoryLimit {
    let id = cell.device_id();
    // Memory that one rank holds back would be missing to the others on the same GPU.
    let shared = id != DeviceId::Cpu && cell.parallel.ranks_on_device(id) > 1;
    let own = if shared { u64::MAX } else { bytes };
    id.limit_memory(own).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"))
}

/// What is measured behind the steps, and then the trace. `placed`: the cell as it trained.
fn finished<N: Build>(
    run: Run<'_, N>,
    (placed, groups): (&Cell, &Groups),
    run_seconds: f64,
    loading: Option<(Loading, f64)>,
) -> Result<Outcome, Stop> {
    let Run { cell, world, mut training, meter, watch, apart, resumed, unsaved, traffic, .. } = run;
    // Losses show the effect of updates; without updates only this norm shows what backward has computed.
    let proves = cell.train.mode.trains() && cell.train.optimizer.rule().is_none();
    let gradient_norm = if proves { training.gradient_norm() } else { None };
    let gradient_histogram = cell.measure.gradient_histogram.then(|| training.count_gradients());
    let mut measured = meter.finish(&|| training.loss())?;
    let ranks = together(world, groups, &mut measured, traffic, training.of_stages());
    measured.losses.drain(..apart);
    measured.noted.drain(..apart.min(measured.noted.len()));
    let moved = cell.eval.is_some_and(|eval| eval.feature_distance).then(|| training.features());
    let crossings = recorded(cell, world, &mut training, watch.trace);
    let feature_distance = moved.map(|features| training.feature_distance(placed, &features));
    let results = training.into_results();
    Ok(Outcome {
        measured: Measured { crossings, ..measured },
        results,
        feature_distance,
        run_seconds,
        loading,
        gradient_norm,
        gradient_histogram,
        begin_seconds: [0.0; 2],
        resumed,
        unsaved,
        ranks,
    })
}

/// What crosses the bus in one more step of the trained network, after all that is measured of it. All ranks take the step,
/// and the first writes its trace.
fn recorded<N: Build>(
    cell: &Cell,
    world: &World,
    training: &mut Training<'_, N>,
    trace: Option<&Path>,
) -> Vec<Crossing> {
    // The row of a cell whose blocks move has what crossed the bus.
    let crosses = cell.offload.moves() && cell.device_id() != DeviceId::Cpu;
    if trace.is_none() && !crosses {
        return Vec::new();
    }
    training.record(trace.filter(|_| world.rank() == 0))
}

/// Writes the weights or the adapter that the cell is to save.
fn save_trained<N: Build>(run: &mut Run<'_, N>, folders: &Folders, groups: &Groups) {
    if folders.weights.is_none() && folders.adapter.is_none() {
        return;
    }
    let shares = run.training.shares();
    if shares.takes_part(&groups.replicas) {
        // Not that of a state.
        let base = run.cell.model.weights_folder().map(hub::local);
        let base = base.as_deref();
        if let Some(folder) = &folders.weights {
            run.save(folder, (Saved::Weights, &shares), |training, folder| {
                training.write_model(folder, base, &shares)
            });
        }
        if let Some(folder) = &folders.adapter {
            let saved = (Saved::Adapter, &shares);
            run.save(folder, saved, |training, folder| training.write_adapter(folder, base, &shares));
        }
    }
    // The first rank may write for longer than ranks wait for each other.
    run.world.all().broadcast_when_ready("end of saving", 0, Vec::new()).wait();
}
