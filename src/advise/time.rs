//! How long a step takes, from its work and the rates of its device.
//!
//! An operator takes the longer of two times: its operations over the rate of a large product, and its bytes over that
//! of a large copy; of both a share is reached, [`PRODUCT_SHARE`] and [`COPY_SHARE`]. A phase takes no less than its
//! launches. Blocks that move take the time of their copies, with `overlap` during the computation, otherwise after it. An
//! update on the host takes its bytes over the host's rate, and backward of the last micro-batch hides what it can.

use strum::VariantArray;

use super::Rates;
use crate::measure::Phase;
use crate::ops::name::OperatorName;
use crate::recipe::Cell;
use crate::residence::{Copies, Memory, Strategy};
use crate::words::DeviceId;

/// Of the rates of large products and copies, what operators of a network reach.
const PRODUCT_SHARE: f64 = 0.75;
const COPY_SHARE: f64 = 0.7;
/// Bytes that a file on an SSD gives or takes a second.
const DISK: f64 = 2e9;
/// Kernels of a block in forward; backward has twice as many.
const LAUNCHES: f64 = 14.0;

/// Seconds of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTime {
    pub forward: f64,
    pub backward: f64,
    /// What an update takes after backward.
    pub optimizer: f64,
    /// Of them, what the copies of blocks take that no computation hides.
    pub copies: f64,
}

impl StepTime {
    pub fn total(&self) -> f64 {
        self.forward + self.backward + self.optimizer
    }
}

pub fn step_time(cell: &Cell, rates: &Rates) -> StepTime {
    let operators = cell.operators();
    let works = operators.works(&cell.workload());
    let product = rates.ceilings.matmul(cell.precision.compute).unwrap_or(f64::INFINITY) * PRODUCT_SHARE;
    let copy = rates.ceilings.copy.unwrap_or(f64::INFINITY) * COPY_SHARE;
    let of = |phase: Phase| -> f64 {
        let names = OperatorName::VARIANTS.iter();
        names.map(|name| works[*name].of(phase)).map(|w| (w.operations / product).max(w.bytes / copy)).sum()
    };
    let micro_batches = cell.train.accumulation_steps as f64;
    let of_blocks = |blocks: f64| micro_batches * blocks * LAUNCHES * rates.launch;
    let layers = operators.blocks as f64;
    // Embedding, norm and head count as a block.
    let launches = of_blocks(layers + 1.0);
    let repeated = match (cell.checkpoint.blocks > 0, cell.offload.moves()) {
        (true, _) => layers,
        (false, true) => layers - cell.offload.resident_blocks.count(operators.blocks) as f64,
        (false, false) => 0.0,
    };
    let stored = cell.precision.stored_bytes() as f64;
    let trained = operators.trained() as f64;
    // Each micro-batch but the first reads and writes the sums of gradients.
    let sums = (micro_batches - 1.0) * 2.0 * trained * stored / copy;
    // A cast reads a weight as it is stored and writes it narrow.
    let element = cell.precision.compute.bytes() as f64;
    let casts = match cell.precision.autocast {
        true => operators.parameters() as f64 * (stored + element) / copy,
        false => 0.0,
    };
    let busy = |work: f64, launches: f64| match cell.device_id() {
        // The host computes and launches by turns; a GPU's host runs ahead.
        DeviceId::Cpu => work + launches,
        DeviceId::Cuda(_) => work.max(launches),
    };
    let forward = busy(of(Phase::Forward) + casts, launches);
    let backward = busy(of(Phase::Backward) + sums, 2.0 * launches + of_blocks(repeated));
    let [forward_copies, backward_copies] = copies(cell, rates);
    let hides = matches!(cell.offload.strategy, Strategy::Overlap(_));
    let with = |compute: f64, copies: f64| if hides { compute.max(copies) } else { compute + copies };
    let (with_forward, with_backward) = (with(forward, forward_copies), with(backward, backward_copies));
    StepTime {
        forward: with_forward,
        backward: with_backward,
        optimizer: of(Phase::Optimizer) + exposed_update(cell, rates, with_backward / micro_batches),
        copies: with_forward - forward + with_backward - backward,
    }
}

/// Seconds of the copies of blocks, their gradients and their inputs in forward and in backward.
fn copies(cell: &Cell, rates: &Rates) -> [f64; 2] {
    if !cell.offload.moves() {
        return [0.0, 0.0];
    }
    let operators = cell.operators();
    let layers = operators.blocks;
    let steps = cell.train.accumulation_steps;
    let updates = cell.train.optimizer.rule().is_some();
    let Copies { forward_to_device, backward_to_device, gradients_to_device, gradients_to_host } =
        cell.offload.fewest_copies(layers, steps, updates);
    let stored = cell.precision.stored_bytes();
    let (block, gradients) = (operators.block_parameters() * stored, operators.block_trained() * stored);
    let moving = layers - cell.offload.resident_blocks.count(layers);
    let inputs = match cell.offload.activations {
        Memory::Device => 0,
        Memory::Host => moving * steps * operators.block.first().map_or(0, |cost| cost.input) as usize,
    } as f64;
    let bytes = |blocks: usize, each: u64| blocks as f64 * each as f64;
    // A block on the CPU is copied in its memory.
    let or_copy =
        |rate: Option<f64>| rate.or(rates.ceilings.copy.map(|copy| copy / 2.0)).unwrap_or(f64::INFINITY);
    let (to_device, to_host) =
        (or_copy(rates.ceilings.host_to_device), or_copy(rates.ceilings.device_to_host));
    let both = or_copy(rates.ceilings.both_ways);
    let forward = (bytes(forward_to_device, block) / to_device).max(inputs / to_host);
    let back_in = bytes(backward_to_device, block) + bytes(gradients_to_device, gradients) + inputs;
    let back_out = bytes(gradients_to_host, gradients);
    let (most, least) = (back_in.max(back_out), back_in.min(back_out));
    // Both ways at once as long as there is something to copy both ways.
    [forward, least / both + (most - least) / if back_in > back_out { to_device } else { to_host }]
}

/// Seconds of an update on the host that come after backward.
fn exposed_update(cell: &Cell, rates: &Rates, backward: f64) -> f64 {
    if cell.offload.optimizer == Memory::Device || cell.train.optimizer.rule().is_none() {
        return 0.0;
    }
    let operators = cell.operators();
    let stored = cell.precision.stored_bytes() as f64;
    let trained = operators.trained() as f64;
    let in_blocks = (operators.block_trained() * operators.blocks as u64) as f64;
    // Master, and state, are read and written; a gradient is read, and a weight written.
    let state = operators.state_bytes(&cell.workload()) as f64;
    let rate = if cell.offload.optimizer_state.is_memory() {
        rates.host_update
    } else {
        DISK.min(rates.host_update)
    };
    let update = |share: f64| share * (trained * (8.0 + 2.0 * stored) + 2.0 * state) / rate;
    let rate = rates.ceilings.device_to_host.or(rates.ceilings.copy).unwrap_or(f64::INFINITY);
    let cross = |parameters: f64| 2.0 * parameters * stored / rate;
    // Only blocks that move have their updates behind backward, and only where no norm of all gradients is awaited.
    match cell.offload.moves() && !cell.train.awaits_norm() {
        true => {
            let rest = trained - in_blocks;
            (update(in_blocks / trained) - backward).max(0.0) + update(rest / trained) + cross(rest)
        }
        false => update(1.0) + cross(trained),
    }
}
