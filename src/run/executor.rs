//! [`Executor`]: runs one cell; [`Outcome`]: how a cell ends.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::again::TryAgain;
use crate::common::DeviceId;
use crate::device::DeviceInfo;
use crate::measure::Measurement;
use crate::recipe::Cell;
use crate::row::Status;
use crate::train::protocol::Advance;

/// How a cell ended.
#[derive(Debug)]
pub enum Outcome {
    Finished(Box<Measurement>),
    /// It ended without a measurement; `status` is never [`Status::Ok`].
    Ended {
        status: Status,
        reason: String,
    },
    /// The user stopped it, and it saved its state after so many steps; it has no row.
    Stopped {
        step: usize,
    },
    /// The user stopped it; it has no row.
    Cancelled,
}

impl Outcome {
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Ended { status: Status::Failed, reason: reason.into() }
    }
}

/// A cell to run, and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub cell: &'a Cell,
    /// Bytes of device memory of each rank.
    pub memory_limit: u64,
    pub timeout: Duration,
    /// File for the trace of one more step.
    pub trace: Option<&'a Path>,
}

/// Runs cells.
pub trait Executor: Sync {
    /// Checks that a cell of so many ranks can be started.
    ///
    /// # Errors
    /// When neither it nor a later one can be started; says what to do.
    fn ready(&self, _ranks: usize) -> Result<(), TryAgain> {
        Ok(())
    }

    /// The cell as its ranks run it, which may be on several hosts.
    fn placed<'c>(&self, cell: &'c Cell) -> Cow<'c, Cell> {
        Cow::Borrowed(cell)
    }

    /// Runs a cell and reports its progress to `on_advance`. Returns soon after `cancel` is set.
    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome;
}

/// Memory on the CPU that a cell may not use, 512 MiB. The limit counts only the cell's heap: its code, its stacks and the
/// allocator's slack (some 200 MiB), and the rest of the machine, must not be driven into swap.
const CPU_RESERVE: u64 = 512 << 20;

/// Bytes of device memory that each rank of a cell may hold: the recipe's limit, but at most its part of the free memory of
/// `device`, the fullest device of its ranks.
pub fn memory_limit(cell: &Cell, device: &DeviceInfo) -> u64 {
    let wanted = cell.measure.memory_limit.map_or(u64::MAX, |bytes| bytes.0);
    let reserve = match cell.device_id() {
        // With little free memory a quarter of it is enough.
        DeviceId::Cpu => CPU_RESERVE.min(device.memory_available / 4),
        // A GPU has no swap: the driver refuses what is not there.
        DeviceId::Cuda(_) => 0,
    };
    match device.memory_available {
        // The system does not say how much is free.
        0 => wanted,
        free => wanted.min((free - reserve) / cell.parallel.ranks_on_device(cell.device_id()) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Bytes;
    use crate::run::testing;

    #[test]
    fn the_limit_is_the_recipes_or_what_is_free() {
        let mut cell = testing::recipe().cells[0].clone();
        let mut device = testing::device();
        device.memory_available = 8 << 30;
        assert_eq!(memory_limit(&cell, &device), (8 << 30) - CPU_RESERVE);
        cell.measure.memory_limit = Some(Bytes(1 << 30));
        assert_eq!(memory_limit(&cell, &device), 1 << 30);
        cell.measure.memory_limit = Some(Bytes(64 << 30));
        assert_eq!(memory_limit(&cell, &device), (8 << 30) - CPU_RESERVE);
        device.memory_available = 400;
        assert_eq!(memory_limit(&cell, &device), 300);
        device.memory_available = 0;
        assert_eq!(memory_limit(&cell, &device), 64 << 30);
    }
}
