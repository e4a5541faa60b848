//! From what the meter and the loader saw to a cell's [`Measurement`].

use std::collections::BTreeMap;

use crate::device::DeviceId;
use crate::measure::{Evaluation, Load, Loading, Measured, Measurement, Samples};
use crate::ops::Operator;
use crate::optim::OptimizerConfig;
use crate::recipe::Cell;

/// What a cell's training came to.
pub struct Trained {
    pub measured: Measured,
    pub evaluations: Vec<Evaluation>,
    /// Of a cell with a sampler, with the squared lengths of its samples added up.
    pub loading: Option<(Loading, f64)>,
}

pub fn squares(loads: &[Load]) -> f64 {
    loads.iter().map(|load| load.counts.squares as f64).sum()
}

pub fn measurement(cell: &Cell, Trained { measured, evaluations, loading }: Trained) -> Measurement {
    let Measured { seconds, losses, memory, prepare_seconds } = measured;
    let steps = seconds[0].len();
    let step = Samples::new((0..steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let (tokens_per_second, flops_per_second) = match (&loading, cell.model.decoder()) {
        // Steps differ in size: means over all of them, of what was no padding.
        (Some((loading, squares)), Some(shape)) => {
            let flops = shape.flops_of(cell, loading.tokens() as f64, *squares);
            let both: f64 = forward.seconds.iter().chain(&backward.seconds).sum();
            (loading.tokens() as f64 / loading.run_seconds, (flops.forward + flops.backward) / both)
        }
        _ => {
            let flops = cell.model.flops(cell);
            let tokens = (cell.train.tokens() * cell.train.accumulation_steps) as f64;
            let both = forward.median + backward.median;
            (tokens / step.median, (flops.forward + flops.backward) / both)
        }
    };
    Measurement {
        tokens_per_second,
        flops_per_second,
        optimizer: (!matches!(cell.train.optimizer, OptimizerConfig::None(_))).then_some(optimizer),
        forward,
        backward,
        step,
        loss: losses,
        evaluations,
        memory,
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
    paths
}
