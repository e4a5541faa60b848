//! Times of what a step moves: the copies of blocks, and updates on the host.

use super::Rates;
use crate::estimate::Load;
use crate::optim::OptimizerConfig;
use crate::recipe::Cell;
use crate::residence::{Copies, Memory};

/// Bytes that a file on an SSD gives or takes a second.
const DISK: f64 = 2e9;

/// Seconds of the copies of blocks, their gradients and their inputs in forward and in backward.
pub(super) fn copies(load: &Load, rates: &Rates) -> [f64; 2] {
    let Load { cell, operators, workload, .. } = load;
    if !cell.offload.moves() {
        return [0.0, 0.0];
    }
    let layers = operators.layers();
    let steps = cell.train.accumulation_steps;
    let block = operators.block_weights();
    let [to_device, to_host, _] = bus(rates);
    let bytes = |blocks: usize, each: u64| blocks as f64 * each as f64;
    if !cell.train.mode.trains() {
        return [bytes(steps * cell.offload.fewest_copies_of_a_forward(layers), block) / to_device, 0.0];
    }
    let Copies { forward_to_device, backward_to_device, gradients_to_device, gradients_to_host } =
        operators.fewest_copies(workload);
    let gradients = operators.block_trained() * cell.precision.stored_bytes();
    let moving = layers - cell.offload.resident_blocks.count(layers);
    let inputs = match cell.offload.activations {
        Memory::Device => 0,
        Memory::Host => moving * steps * operators.block_input() as usize,
    } as f64;
    let forward = (bytes(forward_to_device, block) / to_device).max(inputs / to_host);
    let back_in = bytes(backward_to_device, block) + bytes(gradients_to_device, gradients) + inputs;
    [forward, crossed(cell, rates, [back_in, bytes(gradients_to_host, gradients)])]
}

/// Seconds of copies of so many bytes to the device and to the host: both ways at once as long as there is something to copy
/// both ways, unless the host waits for each.
fn crossed(cell: &Cell, rates: &Rates, [to_device, to_host]: [f64; 2]) -> f64 {
    let [in_rate, out_rate, both] = bus(rates);
    if cell.offload.strategy.movement().is_some_and(|movement| movement.host_waits()) {
        return to_device / in_rate + to_host / out_rate;
    }
    let (most, least) = (to_device.max(to_host), to_device.min(to_host));
    least / both + (most - least) / if to_device > to_host { in_rate } else { out_rate }
}

/// Bytes per second to the device, to the host, and each way at once. A block on the CPU is copied in its memory.
fn bus(rates: &Rates) -> [f64; 3] {
    let ceilings = &rates.ceilings;
    [ceilings.host_to_device, ceilings.device_to_host, ceilings.both_ways]
        .map(|rate| rate.or(ceilings.copy.map(|copy| copy / 2.0)).unwrap_or(f64::INFINITY))
}

/// Bytes per second that a thread of the host updates where moments have few bits, whose codes or rounding take longer than
/// memory, as on 14 threads: in 8 bits 0.88 s for 1.6 and 3.5 to 3.8 s for 7.6 billion parameters, in 16 bits 0.67 to 0.69 s
/// for 1.5 billion.
const EIGHT_BITS: f64 = 2.4e9;
const SIXTEEN_BITS: f64 = 3.2e9;

/// Seconds of an update that come after backward, apart from the device's work: of one on the host, or of the copies of blocks
/// that move to one on the device.
pub(super) fn exposed_update(load: &Load, rates: &Rates, backward: f64) -> f64 {
    let Load { cell, operators, workload, .. } = load;
    if cell.train.optimizer.rule().is_none() {
        return 0.0;
    }
    if cell.offload.optimizer == Memory::Device {
        let layers = operators.layers();
        let moving = layers - cell.offload.resident_blocks.count(layers);
        let trained = (operators.block_trained() * cell.precision.stored_bytes()) as f64;
        let all = if cell.offload.moves() { moving as f64 * trained } else { 0.0 };
        // Weights and gradients come, and weights go back.
        return crossed(cell, rates, [2.0 * all, all]);
    }
    let stored = cell.precision.stored_bytes() as f64;
    let trained = operators.trained() as f64;
    let in_blocks = operators.trained_in_blocks() as f64;
    // Master, and state, are read and written; a gradient is read, and a weight written.
    let state = operators.state_bytes(workload) as f64;
    let computed = match cell.train.optimizer {
        OptimizerConfig::AdamW8bit(_) => rates.host_update.min(EIGHT_BITS * rates.host_threads),
        OptimizerConfig::AdamWBf16(_) => rates.host_update.min(SIXTEEN_BITS * rates.host_threads),
        _ => rates.host_update,
    };
    let rate = if cell.offload.optimizer_state.is_memory() { computed } else { DISK.min(computed) };
    let update = |share: f64| share * (trained * (8.0 + 2.0 * stored) + 2.0 * state) / rate;
    let rate = rates.ceilings.device_to_host.or(rates.ceilings.copy).unwrap_or(f64::INFINITY);
    let cross = |parameters: f64| 2.0 * parameters * stored / rate;
    // Only blocks that move have their updates behind backward, and only where no norm of all gradients is awaited.
    match cell.offload.moves() && !cell.awaits_norm() {
        true => {
            let rest = trained - in_blocks;
            (update(in_blocks / trained) - backward).max(0.0) + update(rest / trained) + cross(rest)
        }
        false => update(1.0) + cross(trained),
    }
}
