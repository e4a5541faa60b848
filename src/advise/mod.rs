//! Which way of training a cell fits into some memory, and which of those is the fastest: by the estimate of memory
//! and a model of time, before anything runs.

mod rates;
mod space;
mod time;

use rayon::prelude::*;

pub use rates::Rates;
pub use space::{AXES, candidates, with_optimizer};
pub use time::{StepTime, step_time};

use crate::device::Target;
use crate::measure::Estimate;
use crate::recipe::Cell;
use crate::residence::{HostBytes, ResidentBlocks};
use crate::words::DeviceId;

/// What a process has of the host's memory besides what its account names: code, libraries, a corpus.
const HOST_BASE: u64 = 700_000_000;

/// Bytes that a cell may take of the device and of the host; `None`: no matter how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub memory: u64,
    pub host_memory: Option<u64>,
}

/// A way of training the same: a cell, what it takes and how long.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cell: Cell,
    pub estimate: Estimate,
    pub host: HostBytes,
    pub time: StepTime,
}

/// What is too small for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacks {
    pub memory: bool,
    pub host_memory: bool,
}

impl Plan {
    pub fn new(cell: Cell, rates: &Rates) -> Self {
        let account = cell.account();
        let time = step_time(&cell, rates);
        Self { estimate: account.estimate(), host: account.host, time, cell }
    }

    /// The least limit on the device's memory that has room for it.
    pub fn memory(&self) -> u64 {
        self.cell.device_id().limit_for(self.estimate.total())
    }

    /// What the process has on the host.
    pub fn host_memory(&self) -> u64 {
        let tensors = if self.cell.device_id() == DeviceId::Cpu { self.estimate.total() } else { 0 };
        HOST_BASE + self.host.total() + tensors
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

    pub fn tokens_per_second(&self) -> f64 {
        let tokens = self.cell.train.tokens() * self.cell.train.accumulation_steps;
        tokens as f64 / self.time.total()
    }
}

/// All plans for a cell: those that fit, the fastest first, and the others, those that need the least first.
#[derive(Clone, Debug)]
pub struct Advice {
    pub fitting: Vec<Plan>,
    pub others: Vec<Plan>,
}

/// Plans for `cells`, which differ in their optimizers, on their device, which `target` has. `kept`: keys, or sections, that
/// stay as they are.
pub fn advise(cells: &[Cell], target: &Target, limits: Limits, rates: &Rates, kept: &[String]) -> Advice {
    let plan = |cell: Cell| Plan::new(with_resident_blocks(cell, limits.memory), rates);
    let all: Vec<Cell> = cells.iter().flat_map(|cell| candidates(cell, target, kept)).collect();
    let plans: Vec<Plan> = all.into_par_iter().map(plan).collect();
    let (mut fitting, mut others): (Vec<Plan>, Vec<Plan>) =
        plans.into_iter().partition(|plan| plan.fits(limits));
    fitting.sort_by(|a, b| a.time.total().total_cmp(&b.time.total()));
    others.sort_by_key(|plan| (plan.lacks(limits).host_memory, plan.memory(), plan.host_memory()));
    Advice { fitting, others }
}

/// With as many resident blocks as there is room for, where the cell leaves their number open.
fn with_resident_blocks(cell: Cell, limit: u64) -> Cell {
    if cell.offload.resident_blocks != ResidentBlocks::Auto {
        return cell;
    }
    let with = |count: usize| {
        let mut cell = cell.clone();
        cell.offload.resident_blocks = ResidentBlocks::Count(count);
        cell
    };
    // More of them take more memory: the largest number that fits, by halving.
    let (mut fits, mut beyond) = (0, cell.operators().blocks + 1);
    while fits + 1 < beyond {
        let middle = usize::midpoint(fits, beyond);
        match with(middle).estimate().total() <= cell.device_id().room(limit) {
            true => fits = middle,
            false => beyond = middle,
        }
    }
    with(fits)
}

#[cfg(test)]
mod tests;
