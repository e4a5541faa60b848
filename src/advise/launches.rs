//! [`from_launch_to_launch`]: how long the host takes from one kernel of a step to the next.

use std::time::Instant;

use burn::tensor::{Int, Tensor};
use strum::VariantArray;

use crate::common::DeviceId;
use crate::device::{Capability, Target};
use crate::measure::Phase;
use crate::model::language::{Computation, LmBatch, Tokens};
use crate::model::{Network, Parts};
use crate::ops::autocast::autocast;
use crate::ops::name::OperatorName;
use crate::recipe::{Cell, Recipe, Source};

/// A network that a device ends as soon as it begins: 0.8 million multiplications a token. It has the operators of every
/// decoder, and so their autodiff and their shares of large and small launches.
const NETWORK: &str = r#"title = "launches"
[model]
kind = "gpt2"
vocab_size = 64
hidden_size = 64
num_hidden_layers = 16
num_attention_heads = 1
max_position_embeddings = 8
[train]
batch_size = 1
seq_len = 8
"#;

/// Seconds of the host for each kernel of forward and backward, autodiff included. The operators' own count of kernels is
/// taken, as in a prediction.
pub fn from_launch_to_launch(device: DeviceId) -> f64 {
    let cell = cell(device);
    let launches = launches(&cell, Phase::Forward) + launches(&cell, Phase::Backward);
    let step = step(&cell);
    // The first compiles.
    step();
    let timed = |_| {
        let start = Instant::now();
        step();
        start.elapsed().as_secs_f64() / launches
    };
    (0..5).map(timed).fold(f64::INFINITY, f64::min)
}

/// Kernels of a phase.
fn launches(cell: &Cell, phase: Phase) -> f64 {
    let works = cell.works();
    OperatorName::VARIANTS.iter().map(|name| works[*name].of(phase).launches).sum()
}

fn cell(device: DeviceId) -> Cell {
    let capability = Target::Here.capability(device);
    // On a GPU steps run in 16 bits, by kernels of their own.
    let precision = match device {
        DeviceId::Cpu => String::new(),
        DeviceId::Cuda(_) => {
            format!("[precision]\ncompute = \"{}\"\nautocast = true\n", Capability::narrow(capability))
        }
    };
    let text = format!("device = \"{device}\"\n{NETWORK}{precision}");
    let source = Source { path: "launches.toml".into(), text };
    let recipe = Recipe::parse_finished(&source, device == DeviceId::Cpu);
    Cell { capability, ..recipe.unwrap_or_else(|e| panic!("{e}")).cells.remove(0) }
}

/// Forward and backward, to the gradients' end.
fn step(cell: &Cell) -> impl Fn() {
    let model = cell.model.language().expect("checked by kind");
    let device = cell.device_id();
    let source = model.source(device, cell.precision.stored(), &cell.tuning()).expect("random weights");
    let computation = Computation::new(cell.precision.arithmetic(), cell.ops, cell.checkpoint);
    let network = model.network(cell.positions(), &source, computation, (None, None), Parts::Whole);
    let (device, ids) = (device.burn(), [7; 8]);
    let labels = Tensor::<1, Int>::from_data(ids, &device);
    let batch = LmBatch { tokens: Tokens::new(&[7; 8], 1, &device), labels, total: ids.len() as f64 };
    let region = cell.precision.region();
    move || {
        let _region = autocast(region);
        drop(network.loss(&batch).backward());
        device.sync().expect("the device works");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is measured is a step: a hundred kernels and more, each in some microseconds.
    #[test]
    fn a_small_step_gives_the_time_of_a_launch() {
        let cell = cell(DeviceId::Cuda(0));
        assert!(launches(&cell, Phase::Forward) >= 100.0 && launches(&cell, Phase::Backward) >= 200.0);
        let seconds = from_launch_to_launch(DeviceId::Cpu);
        assert!((1e-7..1e-3).contains(&seconds), "{seconds}");
    }
}
