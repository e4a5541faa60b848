//! One cell from its settings to a [`Measurement`].

use std::path::Path;

use burn::tensor::Tensor;

use super::clock::Clock;
use super::outcome::{Trained, measurement, squares};
use crate::device::{DeviceId, trace};
use crate::measure::{Evaluation, Loading, Measurement, Meter, Phase, Stop};
use crate::model::language::{Gpt2, Llama};
use crate::model::{Model, Network, Steps, swiglu::SwigluStack};
use crate::offload::Blocks;
use crate::optim::{GradientSet, Optimizer, StepSize};
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
    let measured = match &cell.model {
        Model::Swiglu(_) => Training::<SwigluStack>::run(cell, memory_limit, trace, told, on_step)?,
        Model::Qwen2(_) | Model::Llama(_) => {
            Training::<Llama>::run(cell, memory_limit, trace, told, on_step)?
        }
        Model::Gpt2(_) => Training::<Gpt2>::run(cell, memory_limit, trace, told, on_step)?,
    };
    Ok(measurement(cell, measured))
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
    /// Updates so far, and all of them.
    updates: usize,
    total_updates: usize,
    evaluations: Vec<Evaluation>,
}

impl<'a, N: Network> Training<'a, N> {
    fn run(
        cell: &'a Cell,
        memory_limit: u64,
        trace: Option<&Path>,
        told: fn(usize),
        on_step: &mut dyn FnMut(usize, usize),
    ) -> Result<Trained, Stop> {
        let id = cell.device_id();
        let plain = id.burn();

        // Before memory is counted: a corpus is not the cell's.
        let data = N::steps(cell, &plain);
        let mut meter = id.meter();
        let limit = || {
            id.limit_memory(memory_limit).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"))
        };
        // On a GPU what preparation needs is not the cell's: the limit comes after it.
        let early = (id == DeviceId::Cpu).then(limit);
        let mut training = Self {
            cell,
            device: id,
            network: None,
            optimizer: Optimizer::new(&cell.train.optimizer),
            batches: Vec::new(),
            data,
            held_out: Vec::new(),
            updates: 0,
            total_updates: 0,
            evaluations: Vec::new(),
        };
        training.begin();
        let warmup = cell.measure.warmup;
        let steps = match cell.measure.length {
            Length::Steps(steps) => steps,
            Length::Epochs(epochs) => training.data.of_epochs(epochs).expect("checked: there are samples"),
        };
        on_step(0, warmup + steps);
        let mut first = 0;
        let mut rehearsals = training.data.rehearsals().into_iter();
        training.batches = rehearsals.next().unwrap_or_else(|| training.data.next());
        let sampled = training.data.of_epochs(1).is_some();
        training.total_updates = warmup + steps;
        meter.prepare(&|| drop(training.loss().backward()), told);
        for batches in rehearsals {
            let largest = std::mem::replace(&mut training.batches, batches);
            meter.compile(&|| drop(training.loss().backward()));
            training.batches = largest;
        }
        // The first step does not add to the gradients of the preparation.
        training.network.as_ref().and_then(N::offloaded).inspect(|blocks| blocks.discard_gradients());
        let _limit = early.unwrap_or_else(limit);
        if sampled {
            // The samples are the measured steps' alone: warm-up trains a network of its own, on the
            // largest batch, which tells the most memory.
            for step in 0..warmup {
                training.measured_step(&mut *meter, false)?;
                on_step(step + 1, warmup + steps);
            }
            training.begin();
            training.total_updates = steps;
            first = warmup;
        }
        let mut clock = Clock::start(&plain);
        if sampled {
            training.batches = training.data.next();
        }
        for step in first..warmup + steps {
            if training.evaluation_is_due(step == first) {
                clock.without(|| training.evaluate());
            }
            training.measured_step(&mut *meter, step >= warmup)?;
            if step + 1 == warmup + steps {
                clock.stop();
            }
            training.batches = training.data.next();
            on_step(step + 1, warmup + steps);
        }
        if training.evaluation_is_due(true) {
            training.evaluate();
        }
        let loads = training.data.loads();
        let loading =
            sampled.then(|| (Loading::new(clock.seconds, &loads[..steps]), squares(&loads[..steps])));
        if let Some(path) = trace {
            training.trace(path);
        }
        let mut measured = meter.finish(&|| training.loss().inner())?;
        measured.losses.drain(..first);
        Ok(Trained { measured, evaluations: training.evaluations, loading })
    }

    /// Makes the network and its optimizer, the same ones each time.
    fn begin(&mut self) {
        // Two at a time would take twice the memory.
        self.network = None;
        self.optimizer = Optimizer::new(&self.cell.train.optimizer);
        self.updates = 0;
        let plain = self.device.burn();
        plain.seed(u64::from(self.cell.seed));
        let network = N::init(self.cell, &plain.autodiff());
        if let (Some(blocks), Some(_)) = (network.offloaded(), self.cell.train.clip_norm) {
            blocks.want_squares();
        }
        self.network = Some(network);
    }

    /// Of the next step's first micro-batch.
    fn loss(&self) -> Tensor<1> {
        self.network.as_ref().expect("between steps").loss(&self.batches[0])
    }

    fn measured_step(&mut self, meter: &mut dyn Meter, measured: bool) -> Result<(), Stop> {
        meter.begin(measured);
        self.step(Some(&mut *meter));
        meter.stop().map_or(Ok(()), Err)
    }

    /// Forward and backward of every micro-batch and the update, followed by a meter.
    fn step(&mut self, mut meter: Option<&mut dyn Meter>) {
        let mut end = |phase, loss: Option<Tensor<1>>| {
            let Some(meter) = &mut meter else { return };
            meter.end(phase);
            if let Some(loss) = loss {
                meter.loss(loss);
            }
        };
        let Some(network) = self.network.take() else { return };
        let mut sum = GradientSet::default();
        let mut losses = Vec::new();
        for batch in &self.batches {
            let range = self.device.range(c"forward");
            let loss = network.loss(batch);
            drop(range);
            end(Phase::Forward, Some(loss.clone().inner()));
            losses.extend(self.cell.train.sync_each_step.then(|| loss.clone().inner()));
            let range = self.device.range(c"backward");
            let gradients = loss.backward();
            // The loss holds the graph; freeing it belongs to backward.
            drop(loss);
            sum.add(&network, gradients);
            network.offloaded().inspect(|blocks| blocks.settle());
            drop(range);
            end(Phase::Backward, None);
        }
        let range = self.device.range(c"optimizer");
        let train = &self.cell.train;
        self.updates += 1;
        let size = StepSize {
            rate: train.schedule.factor(self.updates, self.total_updates),
            clip: train.clip_norm.map(|limit| {
                let offloaded = network.offloaded().and_then(Blocks::squares);
                sum.clip_factor(limit, offloaded, &self.device.burn())
            }),
        };
        if let Some(blocks) = network.offloaded() {
            blocks.update(&mut self.optimizer, &size);
            blocks.settle();
        }
        self.network = Some(self.optimizer.step(network, sum, &size));
        drop(range);
        end(Phase::Optimizer, None);
        losses.into_iter().for_each(|loss| drop(loss.into_data()));
    }

    /// Before the first step, after the last, and as often as the recipe asks.
    fn evaluation_is_due(&self, now: bool) -> bool {
        self.cell.eval.is_some_and(|eval| now || self.updates.is_multiple_of(eval.every))
    }

    /// Measures quality on held-out batches.
    fn evaluate(&mut self) {
        let Some(eval) = self.cell.eval else { return };
        let network = self.network.as_ref().expect("between steps").valid();
        // The same batches every time.
        if self.held_out.is_empty() {
            self.held_out = (0..eval.batches).map_while(|_| self.data.held_out()).collect();
        }
        let parts: Vec<Evaluation> = self.held_out.iter().map(|batch| network.evaluate(batch)).collect();
        self.evaluations.push(Evaluation::mean(self.updates, &parts));
    }

    /// Records one more step, outside of the measured ones.
    fn trace(&mut self, path: &Path) {
        let recorded = self.device.record(|| {
            self.step(None);
            // Where loading is under study, what lies between two steps belongs to the picture.
            if !self.data.loads().is_empty() {
                self.batches = self.data.next();
            }
        });
        let written = recorded.and_then(|activities| {
            std::fs::write(path, trace::chrome_trace(&activities).to_string()).map_err(|e| e.to_string())
        });
        if let Err(reason) = written {
            // The measurement is whole without it; the report says that the trace is missing.
            eprintln!("no trace of this cell: {reason}");
        }
    }
}
