//! [`Plan`]: one way of training with its memory and its time, and whether it fits.

use super::{Fidelity, Rates, StepTime};
use crate::common::DeviceId;
use crate::estimate::{Costs, Load, NCCL, most_driver_memory};
use crate::measure::Estimate;
use crate::recipe::Cell;

/// Bytes of the host's memory that a process takes besides those of its account: code, libraries, a corpus. On two cores it was
/// 13 to 20 MB.
pub(super) fn host_base(device: DeviceId) -> u64 {
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
    pub fidelity: Fidelity,
    pub estimate: Estimate,
    /// Bytes that the device's driver is expected to count: [`Load::driver_memory`].
    pub driver_memory: u64,
    /// `None` without the rates of the device, and of what does not fit.
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
        let costs = Costs::new(&cell);
        let load = costs.load(&cell);
        Self { time: rates.map(|rates| StepTime::new(&load, rates)), ..Self::untimed(&load, Fidelity::Same) }
    }

    /// A plan in the place of the cell `own`; its time, if it fits.
    pub(super) fn within(load: &Load, own: &Cell, limits: Limits, rates: Option<&Rates>) -> Self {
        let plan = Self::untimed(load, Fidelity::new(own, load.cell));
        let timed = rates.filter(|_| plan.fits(limits));
        Self { time: timed.map(|rates| StepTime::new(load, rates)), ..plan }
    }

    fn untimed(load: &Load, fidelity: Fidelity) -> Self {
        let account = load.account();
        let (estimate, driver_memory) = (account.estimate(), load.driver_memory(&account));
        Self { cell: load.cell.clone(), fidelity, estimate, driver_memory, time: None }
    }

    /// Predicted seconds of a step.
    pub fn seconds(&self) -> Option<f64> {
        self.time.map(|time| time.total())
    }

    /// The smallest limit on the device's memory that has room for it for certain, in bytes.
    pub fn memory(&self) -> u64 {
        let of_ranks = if self.cell.parallel.is_alone() { 0 } else { NCCL };
        let device = self.cell.device_id();
        match device {
            DeviceId::Cpu => device.limit_for(self.estimate.total()),
            DeviceId::Cuda(_) => {
                let tensors = device.limit_for(self.estimate.total() + of_ranks);
                tensors.max(most_driver_memory(self.driver_memory, &self.cell))
            }
        }
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
