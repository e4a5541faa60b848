//! One cell from its settings to a [`Measurement`].

use burn::tensor::Device;

use crate::measure::{Measurement, Phase, PhaseMeter, Samples};
use crate::model::{Model, Network, swiglu::SwigluStack};
use crate::optim::{Optimizer, OptimizerConfig};
use crate::recipe::Cell;

/// How the steps ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Trained {
    Measured(Box<Measurement>),
    /// The loss of a step (counted from 1) was not finite.
    Diverged {
        step: usize,
        loss: f64,
    },
}

/// Runs a cell's warm-up and measured steps; `on_step(done, of)` follows every step.
pub fn train(cell: &Cell, on_step: &mut dyn FnMut(usize, usize)) -> Trained {
    match &cell.model {
        Model::Swiglu(_) => steps::<SwigluStack>(cell, on_step),
    }
}

fn steps<N: Network>(cell: &Cell, on_step: &mut dyn FnMut(usize, usize)) -> Trained {
    let plain = cell.device_id().burn();
    plain.seed(u64::from(cell.seed));
    let device: Device = plain.clone().autodiff();

    let mut meter = PhaseMeter::new();
    let mut network = N::init(cell, &device);
    let mut optimizer = Optimizer::new(&cell.train.optimizer);
    let batch = N::batch(cell, &plain);

    let measure = &cell.measure;
    let total = measure.warmup + measure.steps;
    let mut losses = Vec::with_capacity(total);
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for step in 0..total {
        let loss = meter.run(Phase::Forward, || network.loss(batch.clone()));
        let value = f64::from(loss.clone().inner().into_scalar::<f32>());
        losses.push(value);
        if !value.is_finite() {
            return Trained::Diverged { step: step + 1, loss: value };
        }
        let gradients = meter.run(Phase::Backward, || {
            let gradients = loss.backward();
            // The loss holds the graph; freeing it belongs to backward.
            drop(loss);
            gradients
        });
        network = meter.run(Phase::Optimizer, || optimizer.step(network, gradients));
        if step >= measure.warmup {
            for phase in Phase::ALL {
                seconds[phase as usize].push(meter.seconds(phase));
            }
        }
        on_step(step + 1, total);
    }

    let step = Samples::new((0..measure.steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let flops = cell.model.flops(cell);
    Trained::Measured(Box::new(Measurement {
        tokens_per_second: cell.train.tokens() as f64 / step.median,
        flops_per_second: (flops.forward + flops.backward) / (forward.median + backward.median),
        optimizer: (!matches!(cell.train.optimizer, OptimizerConfig::None(_))).then_some(optimizer),
        forward,
        backward,
        step,
        loss: losses,
        memory: meter.memory(),
    }))
}
