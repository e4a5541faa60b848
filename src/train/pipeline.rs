//! One cell from its settings to a [`Measurement`].

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Gradients, Tensor};

use crate::device::{DeviceId, trace};
use crate::measure::{Evaluation, Measured, Measurement, Meter, Phase, Samples, Stop};
use crate::model::language::{Gpt2, Llama};
use crate::model::{Model, Network, Steps, swiglu::SwigluStack};
use crate::offload::Blocks;
use crate::ops::Operator;
use crate::ops::checkpoint::differentiate;
use crate::optim::{GradientSet, Optimizer, OptimizerConfig, StepSize, clip_factor};
use crate::precision::autocast::{autocast, keep_casts};
use crate::precision::{GradScaler, GradientHistogram, ScalerRecord, Unscaled, collapse, gradient_histogram};
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
    match &cell.model {
        Model::Swiglu(_) => Training::<SwigluStack>::run(cell, memory_limit, trace, told, on_step),
        Model::Qwen2(_) | Model::Llama(_) => Training::<Llama>::run(cell, memory_limit, trace, told, on_step),
        Model::Gpt2(_) => Training::<Gpt2>::run(cell, memory_limit, trace, told, on_step),
    }
}

/// A network in training.
struct Training<'a, N: Network> {
    cell: &'a Cell,
    device: DeviceId,
    /// `None` only while a step is under way.
    network: Option<N>,
    optimizer: Optimizer,
    scaler: Option<GradScaler>,
    data: Box<dyn Steps<N::Batch>>,
    /// The micro-batches of the step that is next.
    batches: Vec<N::Batch>,
    /// What evaluation reads.
    held_out: Vec<N::Batch>,
    /// Updates so far.
    updates: usize,
    evaluations: Vec<Evaluation>,
    histogram: Option<GradientHistogram>,
}

impl<'a, N: Network> Training<'a, N> {
    fn run(
        cell: &'a Cell,
        memory_limit: u64,
        trace: Option<&Path>,
        told: fn(usize),
        on_step: &mut dyn FnMut(usize, usize),
    ) -> Result<Measurement, Stop> {
        let id = cell.device_id();
        let plain = id.burn();
        plain.seed(u64::from(cell.seed));
        let device: Device = plain.clone().autodiff();

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
            optimizer: Optimizer::new(&cell.train.optimizer),
            scaler: cell.precision.scaler.map(|config| GradScaler::new(config, &plain)),
            batches: data.next(),
            data,
            held_out: Vec::new(),
            updates: 0,
            evaluations: Vec::new(),
            histogram: None,
        };
        let total = cell.measure.warmup + cell.measure.steps;
        on_step(0, total);
        let offloaded = training.network.as_ref().and_then(N::offloaded).cloned();
        if let (Some(blocks), Some(_)) = (&offloaded, cell.train.clip_norm) {
            blocks.want_squares();
        }
        meter.prepare(&|| drop(training.backward(training.loss())), told);
        // The first step does not add to the gradients of the preparation.
        offloaded.inspect(Blocks::discard_gradients);
        let _limit = early.unwrap_or_else(limit);
        for step in 0..total {
            training.evaluate(step == 0);
            meter.begin(step >= cell.measure.warmup);
            training.step(Some(&mut *meter));
            let collapsed = |meter: &dyn Meter| {
                let config = cell.precision.scaler.as_ref()?;
                Some(Stop::Diverged { reason: collapse(config, meter.noted())? })
            };
            if let Some(stop) = meter.stop().or_else(|| collapsed(&*meter)) {
                return Err(stop);
            }
            training.batches = training.data.next();
            on_step(step + 1, total);
        }
        training.evaluate(true);
        if cell.measure.gradient_histogram {
            training.histogram = Some(training.count_gradients());
        }
        if let Some(path) = trace {
            training.trace(path);
        }
        let measured = meter.finish(&|| training.loss().inner())?;
        Ok(measurement(cell, measured, training.evaluations, training.histogram))
    }

    /// Of the next step's first micro-batch.
    fn loss(&self) -> Tensor<1> {
        self.forward(self.network.as_ref().expect("between steps"), &self.batches[0])
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

    /// The sizes of the gradients that the next step's first micro-batch gives.
    fn count_gradients(&self) -> GradientHistogram {
        let network = self.network.as_ref().expect("between steps");
        let scale = self.scaler.as_ref().map_or(1.0, |scaler| scaler.scale().into_scalar::<f32>());
        gradient_histogram(network, f64::from(scale), || self.backward(self.loss()))
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
        // Backward holds on to the casts of one micro-batch by itself; those of a block that moves are
        // freed with it.
        let casts = (self.batches.len() > 1 && network.offloaded().is_none()).then(keep_casts);
        for batch in &self.batches {
            let range = self.device.range(c"forward");
            let loss = self.forward(&network, batch);
            drop(range);
            end(Phase::Forward, Some(loss.clone().inner()));
            let range = self.device.range(c"backward");
            // The loss holds the graph; freeing it belongs to backward.
            let gradients = self.backward(loss);
            sum.add(&network, gradients);
            network.offloaded().inspect(|blocks| blocks.settle());
            drop(range);
            end(Phase::Backward, None);
        }
        drop(casts);
        let range = self.device.range(c"optimizer");
        self.updates += 1;
        let size = self.step_size(&network, &sum);
        if let Some(blocks) = network.offloaded() {
            blocks.update(&mut self.optimizer, &size);
            blocks.settle();
        }
        self.network = Some(self.optimizer.step(network, sum, &size));
        let told = self.scaler.as_mut().zip(size.applied).map(|(scaler, applied)| scaler.update(applied));
        drop(range);
        end(Phase::Optimizer, None);
        if let (Some(meter), Some(told)) = (meter, told) {
            meter.note(told);
        }
    }

    /// How far the update goes that these gradients give.
    fn step_size(&self, network: &N, sum: &GradientSet) -> StepSize {
        let train = &self.cell.train;
        let total = self.cell.measure.warmup + self.cell.measure.steps;
        let size = StepSize { rate: train.schedule.factor(self.updates, total), ..StepSize::FULL };
        let squares = || sum.squares(network.offloaded().and_then(Blocks::squares), &self.device.burn());
        match (&self.scaler, train.clip_norm) {
            (None, None) => size,
            (None, Some(limit)) => StepSize { clip: Some(clip_factor(squares().sqrt(), limit)), ..size },
            (Some(scaler), limit) => {
                let Unscaled { factor, applied } = scaler.unscale(squares(), limit);
                StepSize { clip: Some(factor), applied: Some(applied), ..size }
            }
        }
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
        let _region = autocast(self.cell.precision.region());
        let parts: Vec<Evaluation> = self.held_out.iter().map(|batch| network.evaluate(batch)).collect();
        self.evaluations.push(Evaluation::mean(self.updates, &parts));
    }

    /// Records one more step, outside of the measured ones.
    fn trace(&mut self, path: &Path) {
        let recorded = self.device.record(|| self.step(None));
        let written = recorded.and_then(|activities| {
            std::fs::write(path, trace::chrome_trace(&activities).to_string()).map_err(|e| e.to_string())
        });
        if let Err(reason) = written {
            // The measurement is whole without it; the report says that the trace is missing.
            eprintln!("no trace of this cell: {reason}");
        }
    }
}

fn measurement(
    cell: &Cell,
    measured: Measured,
    evaluations: Vec<Evaluation>,
    gradient_histogram: Option<GradientHistogram>,
) -> Measurement {
    let Measured { seconds, losses, memory, noted, prepare_seconds } = measured;
    let step = Samples::new((0..cell.measure.steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let flops = cell.model.flops(cell);
    Measurement {
        tokens_per_second: (cell.train.tokens() * cell.train.accumulation_steps) as f64 / step.median,
        flops_per_second: (flops.forward + flops.backward) / (forward.median + backward.median),
        optimizer: (!matches!(cell.train.optimizer, OptimizerConfig::None(_))).then_some(optimizer),
        forward,
        backward,
        step,
        loss: losses,
        evaluations,
        scaler: cell.precision.scaler.map(|config| ScalerRecord::new(&config, &noted)),
        gradient_histogram,
        memory,
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
    paths
}
