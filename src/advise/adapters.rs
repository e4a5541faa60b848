//! Times of low-rank adapters, whose products are too narrow for the rates of others.

use super::Rates;
use crate::common::DeviceId;
use crate::estimate::Load;
use crate::ops::lora::are_many;
use crate::params::tuning::TuningConfig;

/// The share of the rate of a large copy at which the products of an adapter read and write, and seconds that each of their kernels
/// takes besides: fitted to the traces in `results/lora` and the rows with LoRA in `results/qwen3`, of ranks 8 and 16.
const SHARE: f64 = 0.43;
const RAMP: f64 = 3e-6;
/// The share where cuBLASLt multiplies many tokens, with what each kernel takes besides: fitted to the cells in
/// `results/five_savings`, of rank 16, and to those of 7B in `results/my_card`, of rank 8 and 1 to 16 micro-batches.
const SHARE_OF_MANY: f64 = 0.9;

/// Seconds of the adapters of a step in forward and in backward, besides the least work of their layers, which counts x and y
/// once. Forward reads x and adds to y; backward reads g twice and x, and adds to dx.
pub(super) fn adapters(load: &Load, rates: &Rates) -> [f64; 2] {
    let cell = load.cell;
    let lora = match &cell.tuning {
        TuningConfig::Lora(lora) => lora,
        TuningConfig::QLora(qlora) => &qlora.0,
        _ => return [0.0, 0.0],
    };
    let Some(copy) = rates.ceilings.copy.filter(|_| cell.device_id() != DeviceId::Cpu) else {
        return [0.0, 0.0];
    };
    let mean = (load.adapted.inputs + load.adapted.outputs) / (2 * load.adapted.layers).max(1);
    let is_many = lora.dropout == 0.0 && are_many(cell.train.tokens(), mean as usize, lora.rank);
    let (share, ramp) = if is_many { (SHARE_OF_MANY, 0.0) } else { (SHARE, RAMP) };
    let steps = (cell.train.accumulation_steps * load.operators.layers()) as f64;
    let column = (cell.train.tokens() as u64 * cell.precision.compute.bytes()) as f64;
    let [inputs, outputs] =
        [load.adapted.inputs, load.adapted.outputs].map(|columns| columns as f64 * column);
    let seconds = |bytes: f64, kernels: f64| {
        steps * (bytes / (share * copy) + kernels * load.adapted.layers as f64 * ramp)
    };
    match cell.train.mode.trains() {
        true => [seconds(inputs + 2.0 * outputs, 2.0), seconds(3.0 * inputs + 2.0 * outputs, 4.0)],
        false => [seconds(inputs + 2.0 * outputs, 2.0), 0.0],
    }
}
