//! One cell from its settings to a [`Measurement`].

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Tensor};

use crate::device::{DeviceId, trace};
use crate::measure::{Measured, Measurement, Meter, Phase, Samples, Stop};
use crate::model::{Model, Network, swiglu::SwigluStack};
use crate::ops::Operator;
use crate::optim::{Optimizer, OptimizerConfig};
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
    let measured = match &cell.model {
        Model::Swiglu(_) => Training::<SwigluStack>::run(cell, memory_limit, trace, told, on_step)?,
    };
    Ok(measurement(cell, measured))
}

/// A network in training.
struct Training<N: Network> {
    device: DeviceId,
    /// `None` only while a step is under way.
    network: Option<N>,
    optimizer: Optimizer,
    batch: N::Batch,
}

impl<N: Network> Training<N> {
    fn run(
        cell: &Cell,
        memory_limit: u64,
        trace: Option<&Path>,
        told: fn(usize),
        on_step: &mut dyn FnMut(usize, usize),
    ) -> Result<Measured, Stop> {
        let id = cell.device_id();
        let plain = id.burn();
        plain.seed(u64::from(cell.seed));
        let device: Device = plain.clone().autodiff();

        let mut meter = id.meter();
        let limit = || {
            id.limit_memory(memory_limit).unwrap_or_else(|e| panic!("the memory limit cannot be set: {e}"))
        };
        // On a GPU what preparation needs is not the cell's: the limit comes after it.
        let early = (id == DeviceId::Cpu).then(limit);
        let mut training = Self {
            device: id,
            network: Some(N::init(cell, &device)),
            optimizer: Optimizer::new(&cell.train.optimizer),
            batch: N::batch(cell, &plain),
        };
        on_step(0, cell.measure.warmup + cell.measure.steps);
        meter.prepare(&|| drop(training.loss().backward()), told);
        let _limit = early.unwrap_or_else(limit);
        let total = cell.measure.warmup + cell.measure.steps;
        for step in 0..total {
            meter.begin(step >= cell.measure.warmup);
            training.step(Some(&mut *meter));
            if let Some(stop) = meter.stop() {
                return Err(stop);
            }
            on_step(step + 1, total);
        }
        if let Some(path) = trace {
            training.trace(path);
        }
        meter.finish(&|| training.loss().inner())
    }

    fn loss(&self) -> Tensor<1> {
        self.network.as_ref().expect("between steps").loss(self.batch.clone())
    }

    /// Forward, backward and optimizer, followed by a meter.
    fn step(&mut self, mut meter: Option<&mut dyn Meter>) {
        let mut end = |phase, loss: Option<Tensor<1>>| {
            let Some(meter) = &mut meter else { return };
            meter.end(phase);
            if let Some(loss) = loss {
                meter.loss(loss);
            }
        };
        let range = self.device.range(c"forward");
        let loss = self.loss();
        drop(range);
        end(Phase::Forward, Some(loss.clone().inner()));
        let range = self.device.range(c"backward");
        let gradients = loss.backward();
        // The loss holds the graph; freeing it belongs to backward.
        drop(loss);
        drop(range);
        end(Phase::Backward, None);
        let range = self.device.range(c"optimizer");
        self.network = self.network.take().map(|network| self.optimizer.step(network, gradients));
        drop(range);
        end(Phase::Optimizer, None);
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

fn measurement(cell: &Cell, measured: Measured) -> Measurement {
    let Measured { seconds, losses, memory, prepare_seconds } = measured;
    let step = Samples::new((0..cell.measure.steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let flops = cell.model.flops(cell);
    Measurement {
        tokens_per_second: cell.train.tokens() as f64 / step.median,
        flops_per_second: (flops.forward + flops.backward) / (forward.median + backward.median),
        optimizer: (!matches!(cell.train.optimizer, OptimizerConfig::None(_))).then_some(optimizer),
        forward,
        backward,
        step,
        loss: losses,
        memory,
        paths: paths(cell),
        prepare_seconds,
    }
}

/// Which way each part of the work took.
fn paths(cell: &Cell) -> BTreeMap<String, String> {
    let mut paths = cell.device_id().paths();
    let swiglu = match cell.ops.swiglu {
        Operator::Custom => "hand-written backward, one element-wise pass each way",
        Operator::Plain => {
            // Burn's own operators multiply with Burn's own matmul.
            paths.insert("matmul".into(), "Burn's own".into());
            "composed of Burn's operators"
        }
    };
    paths.insert("swiglu".into(), swiglu.into());
    paths
}
