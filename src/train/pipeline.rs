//! One cell from its settings to a [`Measurement`].

use burn::tensor::Device;

use crate::measure::{Measured, Measurement, Phase, Samples, Stop};
use crate::model::{Model, Network, swiglu::SwigluStack};
use crate::optim::{Optimizer, OptimizerConfig};
use crate::recipe::Cell;

/// Runs a cell's warm-up and measured steps; `on_step(done, of)` follows every step.
///
/// # Errors
/// Why the steps ended early.
pub fn train(cell: &Cell, on_step: &mut dyn FnMut(usize, usize)) -> Result<Measurement, Stop> {
    let measured = match &cell.model {
        Model::Swiglu(_) => steps::<SwigluStack>(cell, on_step)?,
    };
    Ok(measurement(cell, measured))
}

fn steps<N: Network>(cell: &Cell, on_step: &mut dyn FnMut(usize, usize)) -> Result<Measured, Stop> {
    let id = cell.device_id();
    let plain = id.burn();
    plain.seed(u64::from(cell.seed));
    let device: Device = plain.clone().autodiff();

    let mut meter = id.meter();
    let mut network = N::init(cell, &device);
    let mut optimizer = Optimizer::new(&cell.train.optimizer);
    let batch = N::batch(cell, &plain);

    let total = cell.measure.warmup + cell.measure.steps;
    for step in 0..total {
        meter.begin(step >= cell.measure.warmup);
        let loss = network.loss(batch.clone());
        meter.end(Phase::Forward);
        meter.loss(loss.clone().inner());
        let gradients = loss.backward();
        // The loss holds the graph; freeing it belongs to backward.
        drop(loss);
        meter.end(Phase::Backward);
        network = optimizer.step(network, gradients);
        meter.end(Phase::Optimizer);
        if let Some(stop) = meter.stop() {
            return Err(stop);
        }
        on_step(step + 1, total);
    }
    meter.finish()
}

fn measurement(cell: &Cell, measured: Measured) -> Measurement {
    let Measured { seconds, losses, memory } = measured;
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
    }
}
