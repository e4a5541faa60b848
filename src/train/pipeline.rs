//! One cell from its settings to a [`Measurement`].

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Tensor};

use crate::device::trace::{self, Crossing, Mark};
use crate::device::{self, DeviceId};
use crate::measure::{Evaluation, Measured, Measurement, Phase, Samples, Stop};
use crate::model::language::{Gpt2, Llama};
use crate::model::{Model, Network, Steps, swiglu::SwigluStack};
use crate::offload::Blocks;
use crate::ops::Operator;
use crate::optim::host::Work;
use crate::optim::{GradientSet, Optimizer, OptimizerConfig, StepSize};
use crate::recipe::Cell;

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
        Model::Swiglu(_) => Training::<SwigluStack>::run(cell, memory_limit, trace, told, on_step)?,
        Model::Qwen2(_) | Model::Llama(_) => {
            Training::<Llama>::run(cell, memory_limit, trace, told, on_step)?
        }
        Model::Gpt2(_) => Training::<Gpt2>::run(cell, memory_limit, trace, told, on_step)?,
    };
    Ok(measurement(cell, outcome))
}

/// What the steps of a cell gave.
struct Outcome {
    measured: Measured,
    evaluations: Vec<Evaluation>,
    host_updates: Vec<f64>,
}

/// A network in training.
struct Training<'a, N: Network> {
    cell: &'a Cell,
    device: DeviceId,
    /// `None` only while a step is under way.
    network: Option<N>,
    optimizer: Optimizer,
    data: Box<dyn Steps<N::Batch>>,
    /// The micro-batches of the step that is next.
    batches: Vec<N::Batch>,
    /// What evaluation reads.
    held_out: Vec<N::Batch>,
    /// Updates so far.
    updates: usize,
    evaluations: Vec<Evaluation>,
    /// Seconds of the measured updates on the host.
    host_updates: Vec<f64>,
}

impl<'a, N: Network> Training<'a, N> {
    fn run(
        cell: &'a Cell,
        memory_limit: u64,
        trace: Option<&Path>,
        told: fn(usize),
        on_step: &mut dyn FnMut(usize, usize),
    ) -> Result<Outcome, Stop> {
        let id = cell.device_id();
        let plain = id.burn();
        plain.seed(u64::from(cell.seed));
        let device: Device = plain.clone().autodiff();

        device::require_host_memory(cell.offload().host_bytes(cell))
            .map_err(|reason| Stop::OutOfMemory { reason })?;
        // Before memory is counted: a corpus is not the cell's.
        let mut data = N::steps(cell, &plain);
        let mut meter = id.meter();
        let limit = || {
            id.limit_memory(memory_limit).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"))
        };
        // On a GPU what preparation needs is not the cell's: the limit comes after it.
        let early = (id == DeviceId::Cpu).then(limit);
        let mut training = Self {
            cell,
            device: id,
            network: Some(N::init(cell, &device)),
            optimizer: Optimizer::new(&cell.train.optimizer, cell.offload().optimizer, id),
            batches: data.next(),
            data,
            held_out: Vec::new(),
            updates: 0,
            evaluations: Vec::new(),
            host_updates: Vec::new(),
        };
        let total = cell.measure.warmup + cell.measure.steps;
        on_step(0, total);
        let offloaded = training.network.as_ref().and_then(N::offloaded).cloned();
        if let (Some(blocks), Some(_)) = (&offloaded, cell.train.clip_norm) {
            blocks.want_squares();
        }
        training.optimizer.adopt(training.network.as_ref().expect("just made"), offloaded.as_ref());
        meter.prepare(&|| drop(training.loss().backward()), told);
        // The first step does not add to the gradients of the preparation.
        offloaded.as_ref().inspect(|blocks| blocks.discard_gradients());
        let _limit = early.unwrap_or_else(limit);
        for step in 0..total {
            training.evaluate(step == 0);
            meter.begin(step >= cell.measure.warmup);
            training.step(&mut |phase, loss| {
                meter.end(phase);
                if let Some(loss) = loss {
                    meter.loss(loss);
                }
            });
            let seconds = training.optimizer.take_host_seconds();
            training.host_updates.extend(seconds.filter(|_| step >= cell.measure.warmup));
            if let Some(stop) = meter.stop() {
                return Err(stop);
            }
            training.batches = training.data.next();
            on_step(step + 1, total);
        }
        training.evaluate(true);
        // What crossed the bus belongs to the row of a cell whose blocks move.
        let recorded = offloaded.is_some() && id != DeviceId::Cpu;
        let crossings = if trace.is_some() || recorded { training.record(trace) } else { Vec::new() };
        let measured = meter.finish(&|| training.loss().inner())?;
        let Self { evaluations, host_updates, .. } = training;
        Ok(Outcome { measured: Measured { crossings, ..measured }, evaluations, host_updates })
    }

    /// Of the next step's first micro-batch.
    fn loss(&self) -> Tensor<1> {
        self.network.as_ref().expect("between steps").loss(&self.batches[0])
    }

    /// Forward and backward of every micro-batch and the update; `end` hears of the end of each phase,
    /// and after a forward of its loss.
    fn step(&mut self, end: &mut dyn FnMut(Phase, Option<Tensor<1>>)) {
        let Some(network) = self.network.take() else { return };
        let train = &self.cell.train;
        self.updates += 1;
        let total = self.cell.measure.warmup + self.cell.measure.steps;
        let rate = train.schedule.factor(self.updates, total);
        let mut sum = GradientSet::default();
        for (i, batch) in self.batches.iter().enumerate() {
            let range = self.device.range(c"forward");
            let loss = network.loss(batch);
            drop(range);
            end(Phase::Forward, Some(loss.clone().inner()));
            let range = self.device.range(c"backward");
            // No update may use the norm of gradients that are still to come.
            if let (Some(blocks), None) = (network.offloaded(), train.clip_norm)
                && i + 1 == self.batches.len()
            {
                blocks.update_on_arrival(Work::Step { rate, clip: 1.0 });
            }
            let gradients = loss.backward();
            // The loss holds the graph; freeing it belongs to backward.
            drop(loss);
            sum.add(&network, gradients);
            network.offloaded().inspect(|blocks| blocks.settle());
            drop(range);
            end(Phase::Backward, None);
        }
        let range = self.device.range(c"optimizer");
        let size = StepSize {
            rate,
            clip: train.clip_norm.map(|limit| {
                let offloaded = network.offloaded().and_then(Blocks::squares);
                sum.clip_factor(limit, offloaded, &self.device.burn())
            }),
        };
        if let Some(blocks) = network.offloaded() {
            blocks.update(&mut self.optimizer, &size);
            blocks.settle();
        }
        let network = self.optimizer.step(network, sum, &size);
        network.offloaded().inspect(|blocks| blocks.finish_updates());
        self.network = Some(network);
        drop(range);
        end(Phase::Optimizer, None);
    }

    /// Measures quality on held-out batches when it is time to, or when told to.
    fn evaluate(&mut self, now: bool) {
        let Some(eval) = self.cell.eval else { return };
        if !now && !self.updates.is_multiple_of(eval.every) {
            return;
        }
        let network = self.network.as_ref().expect("between steps").valid();
        // The same batches every time.
        if self.held_out.is_empty() {
            self.held_out = (0..eval.batches).map_while(|_| self.data.held_out()).collect();
        }
        let parts: Vec<Evaluation> = self.held_out.iter().map(|batch| network.evaluate(batch)).collect();
        self.evaluations.push(Evaluation::mean(self.updates, &parts));
    }

    /// Records one more step, outside of the measured ones, and writes its trace if there is a path.
    fn record(&mut self, path: Option<&Path>) -> Vec<Crossing> {
        let device = self.device;
        let recorded = device.record(|| self.step(&mut |phase, _| device.mark(Mark::End(phase))));
        let written = recorded.and_then(|activities| {
            if let Some(path) = path {
                let trace = trace::chrome_trace(&activities).to_string();
                std::fs::write(path, trace).map_err(|e| e.to_string())?;
            }
            Ok(trace::crossings(&activities))
        });
        written.unwrap_or_else(|reason| {
            // The measurement is whole without it; the report says that the trace is missing.
            eprintln!("no trace of this cell: {reason}");
            Vec::new()
        })
    }
}

fn measurement(cell: &Cell, Outcome { measured, evaluations, host_updates }: Outcome) -> Measurement {
    let Measured { seconds, losses, memory, crossings, prepare_seconds } = measured;
    let step = Samples::new((0..cell.measure.steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let flops = cell.model.flops(cell);
    Measurement {
        tokens_per_second: (cell.train.tokens() * cell.train.accumulation_steps) as f64 / step.median,
        flops_per_second: (flops.forward + flops.backward) / (forward.median + backward.median),
        optimizer: (!matches!(cell.train.optimizer, OptimizerConfig::None(_))).then_some(optimizer),
        host_update: (!host_updates.is_empty()).then(|| Samples::new(host_updates)),
        forward,
        backward,
        step,
        loss: losses,
        evaluations,
        memory,
        crossings,
        paths: paths(cell),
        prepare_seconds,
    }
}

/// Which way each part of the work took.
fn paths(cell: &Cell) -> BTreeMap<String, String> {
    let mut paths = cell.device_id().paths();
    for (name, operator) in cell.ops.of(&cell.model) {
        let way = match operator {
            Operator::Custom => "hand-written backward, fused element-wise passes",
            Operator::Plain => "composed of Burn's operators",
        };
        paths.insert(name.into(), way.into());
    }
    if cell.offload().moves() {
        let slots = match cell.train.optimizer {
            OptimizerConfig::None(_) => "blocks stay in them from one step to the next",
            OptimizerConfig::Sgd(_) | OptimizerConfig::AdamW(_) => "filled anew after each update",
        };
        paths.insert("slots".into(), slots.into());
    }
    paths
}
