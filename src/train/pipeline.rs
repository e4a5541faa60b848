//! One cell from its settings to a [`Measurement`]: preparation, warm-up, measured steps, evaluation.

use std::path::Path;

use super::build::Build;
use super::clock::Clock;
use super::outcome::{Outcome, measurement};
use super::training::Training;
use crate::device::{self, DeviceId};
use crate::measure::{Load, Loading, Measured, Measurement, Meter, Stop, diverged};
use crate::model::{Kind, on_model};
use crate::precision::collapse;
use crate::recipe::{Cell, Length};

/// Runs a cell's warm-up and measured steps within `memory_limit` bytes of device memory;
/// `told` follows the preparation, as [`Meter::prepare`] has it, and `on_step(done, of)` every step.
/// With `trace`, one more step is recorded there as a Chrome trace.
///
/// # Errors
/// Why the steps ended early.
pub fn train(
    cell: &Cell,
    memory_limit: u64,
    trace: Option<&Path>,
    told: fn(usize),
    on_step: &mut dyn FnMut(usize, usize),
) -> Result<Measurement, Stop> {
    let outcome = on_model!(&cell.model, model => run(model, cell, memory_limit, trace, told, on_step)?);
    let measurement = measurement(cell, outcome);
    match measurement.not_finite() {
        None => Ok(measurement),
        Some(key) => Err(diverged(&format!("{key} of the measurement is not finite"))),
    }
}

fn run<K: Kind<Network: Build>>(
    _: &K,
    cell: &Cell,
    memory_limit: u64,
    trace: Option<&Path>,
    told: fn(usize),
    on_step: &mut dyn FnMut(usize, usize),
) -> Result<Outcome, Stop> {
    let id = cell.device_id();
    device::require_host_memory(cell.estimate().host).map_err(|reason| Stop::OutOfMemory { reason })?;
    // Before memory is counted: a corpus is not the cell's.
    let feed = K::Network::feed(cell);
    let mut meter = id.meter();
    let limit =
        || id.limit_memory(memory_limit).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"));
    // On a GPU what preparation needs is not the cell's: the limit comes after it.
    let early = (id == DeviceId::Cpu).then(limit);

    let steps = match cell.measure.length {
        Length::Steps(steps) => steps,
        Length::Epochs(epochs) => feed.of_epochs(epochs).expect("checked: there are samples"),
    };
    let total = cell.measure.warmup + steps;
    let mut training = Training::<K::Network>::new(cell, feed, total);
    on_step(0, total);
    training.prepare(&mut *meter, told);
    let _limit = early.unwrap_or_else(limit);
    training.make_states();
    let mut run = Run { cell, training, meter, on_step, done: 0, steps };
    let sampled = cell.data.sampler().sampler.keeps_samples();
    if sampled {
        run.warm_up_apart()?;
    }
    let first = run.done;
    let run_seconds = run.steps()?;

    let loading = sampled.then(|| run.loading(run_seconds));
    let Run { mut training, meter, .. } = run;
    // What crossed the bus belongs to the row of a cell whose blocks move.
    let recorded = cell.offload.moves() && id != DeviceId::Cpu;
    let crossings = if trace.is_some() || recorded { training.record(trace) } else { Vec::new() };
    let gradient_histogram = cell.measure.gradient_histogram.then(|| training.count_gradients());
    let mut measured = meter.finish(&|| training.loss())?;
    measured.losses.drain(..first);
    measured.noted.drain(..first.min(measured.noted.len()));
    let (evaluations, host_updates) = training.into_results();
    let measured = Measured { crossings, ..measured };
    Ok(Outcome { measured, evaluations, host_updates, run_seconds, loading, gradient_histogram })
}

/// The steps of a cell that is prepared.
struct Run<'r, N: Build> {
    cell: &'r Cell,
    training: Training<'r, N>,
    meter: Box<dyn Meter>,
    on_step: &'r mut dyn FnMut(usize, usize),
    /// Steps so far, warm-up included.
    done: usize,
    /// Measured steps.
    steps: usize,
}

impl<N: Build> Run<'_, N> {
    /// The samples are the measured steps' alone: warm-up trains a network of its own, on the largest batch,
    /// which shows the most memory.
    fn warm_up_apart(&mut self) -> Result<(), Stop> {
        for _ in 0..self.cell.measure.warmup {
            self.step(false)?;
        }
        self.training.begin(self.steps);
        self.training.make_states();
        Ok(())
    }

    /// All steps that are left, with the evaluations; gives the seconds of the measured ones.
    fn steps(&mut self) -> Result<f64, Stop> {
        let device = self.cell.device_id().burn();
        let mut clock = Clock::new(&device);
        let (first, warmup) = (self.done, self.cell.measure.warmup);
        for step in first..warmup + self.steps {
            if step == warmup {
                clock.start();
            }
            self.training.load();
            if self.training.evaluation_is_due(step == first) {
                clock.without(|| self.training.evaluate())?;
            }
            self.step(step >= warmup)?;
        }
        clock.stop();
        self.training.load();
        if self.training.evaluation_is_due(true) {
            self.training.evaluate()?;
        }
        Ok(clock.seconds)
    }

    /// One step, followed by the meter.
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
        let stop = meter.stop().or_else(|| {
            let reason = collapse(self.cell.precision.scaler.as_ref()?, meter.noted())?;
            Some(Stop::Diverged { reason })
        });
        if let Some(stop) = stop {
            return Err(stop);
        }
        self.done += 1;
        (self.on_step)(self.done, self.cell.measure.warmup + self.steps);
        Ok(())
    }

    /// What the batches of the measured steps came to, with the squared lengths of their samples added up.
    fn loading(&self, run_seconds: f64) -> (Loading, f64) {
        let feed = self.training.feed();
        let loads: &[Load] = &feed.loads()[..self.steps];
        let loading = Loading { largest_batch: feed.largest(), ..Loading::new(run_seconds, loads) };
        (loading, loads.iter().map(|load| load.counts.squares as f64).sum())
    }
}
