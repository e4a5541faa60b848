//! One cell from its settings to a [`Measurement`]: preparation, warm-up, measured steps, evaluation.

use std::path::Path;

use super::clock::Clock;
use super::outcome::{Outcome, measurement};
use super::training::Training;
use crate::device::{self, DeviceId};
use crate::measure::{Loading, Measured, Measurement, Meter, Stop, diverged};
use crate::model::language::{Gpt2, Llama};
use crate::model::{Model, Network, swiglu::SwigluStack};
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
    let outcome = match &cell.model {
        Model::Swiglu(_) => run::<SwigluStack>(cell, memory_limit, trace, told, on_step)?,
        Model::Qwen2(_) | Model::Llama(_) => run::<Llama>(cell, memory_limit, trace, told, on_step)?,
        Model::Gpt2(_) => run::<Gpt2>(cell, memory_limit, trace, told, on_step)?,
    };
    let measurement = measurement(cell, outcome);
    match measurement.not_finite() {
        None => Ok(measurement),
        Some(key) => Err(diverged(&format!("{key} of the measurement is not finite"))),
    }
}

fn run<N: Network>(
    cell: &Cell,
    memory_limit: u64,
    trace: Option<&Path>,
    told: fn(usize),
    on_step: &mut dyn FnMut(usize, usize),
) -> Result<Outcome, Stop> {
    let id = cell.device_id();
    let plain = id.burn();
    device::require_host_memory(cell.offload.host_bytes(cell))
        .map_err(|reason| Stop::OutOfMemory { reason })?;
    // Before memory is counted: a corpus is not the cell's.
    let data = N::steps(cell, &plain);
    let mut meter = id.meter();
    let limit =
        || id.limit_memory(memory_limit).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"));
    // On a GPU what preparation needs is not the cell's: the limit comes after it.
    let early = (id == DeviceId::Cpu).then(limit);

    let warmup = cell.measure.warmup;
    let steps = match cell.measure.length {
        Length::Steps(steps) => steps,
        Length::Epochs(epochs) => data.of_epochs(epochs).expect("checked: there are samples"),
    };
    let sampled = data.of_epochs(1).is_some();
    let mut training = Training::<N>::new(cell, data, warmup + steps);
    on_step(0, warmup + steps);
    training.prepare(&mut *meter, told);
    let _limit = early.unwrap_or_else(limit);
    training.make_states();

    let mut first = 0;
    if sampled {
        // The samples are the measured steps' alone: warm-up trains a network of its own, on the
        // largest batch, which tells the most memory.
        for step in 0..warmup {
            measured_step(cell, &mut training, &mut *meter, false)?;
            on_step(step + 1, warmup + steps);
        }
        training.begin(steps);
        training.make_states();
        first = warmup;
    }
    let mut clock = Clock::new(&plain);
    for step in first..warmup + steps {
        if step == warmup {
            clock.start();
        }
        // Without samples the first step's batch is that of the preparation.
        if step > first || sampled {
            training.load();
        }
        if training.evaluation_is_due(step == first) {
            clock.without(|| training.evaluate())?;
        }
        measured_step(cell, &mut training, &mut *meter, step >= warmup)?;
        on_step(step + 1, warmup + steps);
    }
    clock.stop();
    training.load();
    if training.evaluation_is_due(true) {
        training.evaluate()?;
    }
    let loads = training.loads();
    let squares = |loads: &[crate::measure::Load]| loads.iter().map(|load| load.counts.squares as f64).sum();
    let loading = sampled.then(|| {
        let largest_batch = training.largest();
        let loading = Loading { largest_batch, ..Loading::new(clock.seconds, &loads[..steps]) };
        (loading, squares(&loads[..steps]))
    });
    // What crossed the bus belongs to the row of a cell whose blocks move.
    let recorded = cell.offload.moves() && id != DeviceId::Cpu;
    let crossings = if trace.is_some() || recorded { training.record(trace) } else { Vec::new() };
    let gradient_histogram = cell.measure.gradient_histogram.then(|| training.count_gradients());
    let mut measured = meter.finish(&|| training.loss().inner())?;
    measured.losses.drain(..first);
    measured.noted.drain(..first.min(measured.noted.len()));
    let (evaluations, host_updates) = training.into_results();
    let measured = Measured { crossings, ..measured };
    Ok(Outcome {
        measured,
        evaluations,
        host_updates,
        run_seconds: clock.seconds,
        loading,
        gradient_histogram,
    })
}

/// One step, followed by the meter.
fn measured_step<N: Network>(
    cell: &Cell,
    training: &mut Training<N>,
    meter: &mut dyn Meter,
    measured: bool,
) -> Result<(), Stop> {
    meter.begin(measured);
    let told = training.step(&mut |phase, loss| {
        meter.end(phase);
        if let Some(loss) = loss {
            meter.loss(loss);
        }
    });
    training.note_host_update(measured);
    told.into_iter().for_each(|numbers| meter.note(numbers));
    let stop = meter.stop().or_else(|| {
        let reason = collapse(cell.precision.scaler.as_ref()?, meter.noted())?;
        Some(Stop::Diverged { reason })
    });
    stop.map_or(Ok(()), Err)
}
