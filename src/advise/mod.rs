//! Which way of training a cell fits into some memory, and which of those is the fastest: by the estimate of memory
//! and a model of time, before anything runs. Without the rates of the device nothing is said of time, and less work comes first.

mod launches;
mod moved;
mod precisions;
mod rates;
mod space;
mod time;
mod work;

use itertools::Itertools;
use rayon::prelude::*;

pub use launches::from_launch_to_launch;
pub use precisions::{is_unscaled, precisions};
pub use rates::Rates;
pub use space::{AXES, candidates, keeps, with_optimizer};
pub use time::{StepTime, launching, step_time, with_launches};

use crate::common::DeviceId;
use crate::device::Target;
use crate::measure::Estimate;
use crate::recipe::Cell;
use crate::residence::{Memory, Overlap, ResidentBlocks, Strategy};
use work::StepWork;

/// Bytes of the host's memory that a process takes besides those of its account: code, libraries, a corpus. On two cores it was
/// 13 to 20 MB.
fn host_base(device: DeviceId) -> u64 {
    match device {
        DeviceId::Cpu => 50_000_000,
        DeviceId::Cuda(_) => 700_000_000,
    }
}

/// Bytes that a cell may take of the device and of the host; `None`: any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub memory: u64,
    pub host_memory: Option<u64>,
}

/// One way of training a cell, with its estimated memory and time.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cell: Cell,
    pub estimate: Estimate,
    /// `None` without the rates of the device.
    pub time: Option<StepTime>,
}

/// Which memory is too small for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacks {
    pub memory: bool,
    pub host_memory: bool,
}

impl Plan {
    /// `rates`: of the cell's device, where they are known.
    pub fn new(cell: Cell, rates: Option<&Rates>) -> Self {
        let time = rates.map(|rates| step_time(&cell, rates));
        Self { estimate: cell.estimate(), time, cell }
    }

    /// Predicted seconds of a step.
    pub fn seconds(&self) -> Option<f64> {
        self.time.map(|time| time.total())
    }

    /// The smallest limit on the device's memory that has room for it, in bytes.
    pub fn memory(&self) -> u64 {
        self.cell.device_id().limit_for(self.estimate.total())
    }

    /// Bytes of the process in the host's memory.
    pub fn host_memory(&self) -> u64 {
        let device = self.cell.device_id();
        host_base(device) + self.estimate.on_host(device)
    }

    pub fn lacks(&self, limits: Limits) -> Lacks {
        Lacks {
            memory: self.memory() > limits.memory,
            host_memory: limits.host_memory.is_some_and(|limit| self.host_memory() > limit),
        }
    }

    pub fn fits(&self, limits: Limits) -> bool {
        self.lacks(limits) == Lacks { memory: false, host_memory: false }
    }

    pub fn tokens_per_second(&self) -> Option<f64> {
        Some(self.cell.train.tokens_of_a_step() as f64 / self.seconds()?)
    }
}

/// All plans for a cell: those that fit, fastest first, or those with the least work where times are not known; and the others,
/// with the smallest need first.
#[derive(Clone, Debug)]
pub struct Advice {
    pub fitting: Vec<Plan>,
    pub others: Vec<Plan>,
}

/// Plans for `cells`, which differ in their optimizers, on their device, which `target` has. `rates`: as in [`Plan::new`]; `kept`: as
/// in [`candidates`].
pub fn advise(
    cells: &[Cell],
    target: &Target,
    limits: Limits,
    rates: Option<&Rates>,
    kept: &[String],
) -> Advice {
    let all: Vec<Cell> = cells.iter().flat_map(|cell| candidates(cell, target, kept)).collect();
    let all: Vec<Cell> = all.into_par_iter().map(|cell| cell.within(limits.memory)).collect();
    let all: Vec<Cell> = all.into_iter().unique_by(what_it_does).collect();
    let mut plans: Vec<Plan> = all.into_par_iter().map(|cell| Plan::new(cell, rates)).collect();
    // More slots are a way of their own only where they save time.
    plans.sort_by_key(Plan::memory);
    let plans = plans.into_iter().unique_by(without_slots);
    let (mut fitting, mut others): (Vec<Plan>, Vec<Plan>) = plans.partition(|plan| plan.fits(limits));
    match rates {
        Some(_) => fitting.sort_by(|a, b| {
            let [a_time, b_time] = [a, b].map(|plan| plan.seconds().unwrap_or_default());
            a_time.total_cmp(&b_time).then(a.memory().cmp(&b.memory()))
        }),
        None => fitting.sort_by_cached_key(|plan| (StepWork::of(&plan.cell), plan.memory())),
    }
    others.sort_by_key(|plan| (plan.lacks(limits).host_memory, plan.memory(), plan.host_memory()));
    Advice { fitting, others }
}

/// A way of training whatever its number of slots, and its time in µs.
fn without_slots(plan: &Plan) -> (String, u64) {
    let mut cell = plan.cell.clone();
    if let Strategy::Overlap(overlap) = &mut cell.offload.strategy {
        overlap.buffers = 2;
    }
    (cell.to_json().to_string(), plan.seconds().map_or(0, |seconds| (seconds * 1e6) as u64))
}

/// What distinguishes ways of training. Where every block stays on the device, the way in which blocks would move does not.
/// Nor do segments where every block moves: each is computed again by itself.
fn what_it_does(cell: &Cell) -> String {
    let mut cell = cell.clone();
    let all = cell.operators().layers();
    match cell.offload.resident_blocks {
        ResidentBlocks::Count(0) if cell.offload.moves() => cell.checkpoint.blocks = 0,
        ResidentBlocks::Count(count) if cell.offload.moves() && count == all => {
            cell.offload.strategy = Strategy::Overlap(Overlap { buffers: 2 });
            cell.offload.activations = Memory::Device;
        }
        _ => {}
    }
    cell.to_json().to_string()
}

#[cfg(test)]
mod tests;
