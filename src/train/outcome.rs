//! From what a cell's steps gave to its [`Measurement`].

use std::collections::BTreeMap;

use crate::device::DeviceId;
use crate::measure::{Evaluation, Loading, Measured, Measurement, Samples};
use crate::ops::Operator;
use crate::optim::OptimizerConfig;
use crate::precision::{GradientHistogram, ScalerRecord};
use crate::recipe::Cell;

/// What a cell's training came to.
pub struct Outcome {
    pub measured: Measured,
    pub evaluations: Vec<Evaluation>,
    /// Seconds of the measured updates on the host.
    pub host_updates: Vec<f64>,
    /// Of all measured steps, by the host's clock.
    pub run_seconds: f64,
    /// Of a cell with a sampler, with the squared lengths of its samples added up.
    pub loading: Option<(Loading, f64)>,
    pub gradient_histogram: Option<GradientHistogram>,
}

pub fn measurement(cell: &Cell, outcome: Outcome) -> Measurement {
    let Outcome { measured, evaluations, host_updates, run_seconds, loading, gradient_histogram } = outcome;
    let Measured { seconds, losses, memory, crossings, noted, prepare_seconds } = measured;
    let steps = seconds[0].len();
    let step = Samples::new((0..steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let (tokens_per_second, flops_per_second) = match (&loading, cell.model.decoder()) {
        // Steps differ in size: means over all of them, of what was no padding.
        (Some((loading, squares)), Some(shape)) => {
            let flops = shape.flops_of(cell, loading.tokens() as f64, *squares);
            let both: f64 = forward.seconds.iter().chain(&backward.seconds).sum();
            (loading.tokens() as f64 / run_seconds, (flops.forward + flops.backward) / both)
        }
        _ => {
            let flops = cell.model.flops(cell);
            let tokens = (cell.train.tokens() * cell.train.accumulation_steps * steps) as f64;
            let both = forward.median + backward.median;
            (tokens / run_seconds, (flops.forward + flops.backward) / both)
        }
    };
    Measurement {
        tokens_per_second,
        run_seconds: loading.is_none().then_some(run_seconds),
        flops_per_second,
        optimizer: (!matches!(cell.train.optimizer, OptimizerConfig::None(_))).then_some(optimizer),
        host_update: (!host_updates.is_empty()).then(|| Samples::new(host_updates)),
        forward,
        backward,
        step,
        loss: losses,
        evaluations,
        scaler: cell.precision.scaler.map(|config| ScalerRecord::new(&config, &noted)),
        gradient_histogram,
        memory,
        crossings,
        paths: paths(cell),
        prepare_seconds,
        loading: loading.map(|(loading, _)| loading),
    }
}

/// Which way each part of the work took.
fn paths(cell: &Cell) -> BTreeMap<String, String> {
    let mut paths = cell.device_id().paths();
    if let Some(sampler) = cell.data.sampler() {
        let way = match (cell.device_id(), sampler.pinned) {
            (DeviceId::Cpu, _) => "none, the CPU reads the host's memory",
            (_, true) => "one copy from page-locked memory",
            (_, false) => "a copy for each array from pageable memory",
        };
        paths.insert("batches".into(), way.into());
    }
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
