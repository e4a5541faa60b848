//! [`Executor`]: what runs one cell, and how a cell may end.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::again::TryAgain;
use crate::device::DeviceInfo;
use crate::measure::Measurement;
use crate::recipe::Cell;
use crate::row::Status;
use crate::words::DeviceId;

/// How a cell ended.
#[derive(Debug)]
pub enum Outcome {
    Finished(Box<Measurement>),
    /// Without a measurement; `status` is never [`Status::Ok`].
    Ended {
        status: Status,
        reason: String,
    },
    /// Stopped by the user: no result.
    Cancelled,
}

impl Outcome {
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Ended { status: Status::Failed, reason: reason.into() }
    }
}

/// One cell to run and what it may use.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub cell: &'a Cell,
    /// Processes that it runs in.
    pub ranks: usize,
    /// Bytes of device memory, of each.
    pub memory_limit: u64,
    pub timeout: Duration,
    /// Where to record one more step.
    pub trace: Option<&'a Path>,
}

/// What a running cell reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Before its first step; so many matrix products are tuned.
    Preparing { tuned: usize },
    /// Step `done` of `of` has ended; warm-up counts.
    Step { done: usize, of: usize },
}

/// Runs cells.
pub trait Executor: Sync {
    /// Whether a cell of so many ranks can be started.
    ///
    /// # Errors
    /// When it cannot, nor can a later one: what to do.
    fn ready(&self, _ranks: usize) -> Result<(), TryAgain> {
        Ok(())
    }

    /// The cell as its ranks run it: they may be elsewhere.
    fn placed<'c>(&self, cell: &'c Cell) -> Cow<'c, Cell> {
        Cow::Borrowed(cell)
    }

    /// Runs a cell and calls `on_advance` with how far it is. Returns soon after `cancel` is set.
    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome;
}

/// Memory on the CPU that a cell may not use, 512 MiB: the limit counts the cell's heap alone, and
/// its code, stacks and the allocator's slack (some 200 MiB) and the rest of the machine must not
/// be driven into swap.
const CPU_RESERVE: u64 = 512 << 20;

/// Bytes of device memory each rank of a cell may hold: the recipe's limit, but never more than its part of what
/// `device`, which is the cell's or the fullest of its ranks', has free.
pub fn memory_limit(cell: &Cell, device: &DeviceInfo) -> u64 {
    let wanted = cell.measure.memory_limit.map_or(u64::MAX, |bytes| bytes.0);
    let reserve = match cell.device_id() {
        // On a machine with little free memory a quarter of it is enough.
        DeviceId::Cpu => CPU_RESERVE.min(device.memory_available / 4),
        // The driver refuses what is not there, and nothing is driven into swap.
        DeviceId::Cuda(_) => 0,
    };
    match device.memory_available {
        // The system does not say: only the recipe's limit is known.
        0 => wanted,
        free => wanted.min((free - reserve) / cell.parallel.ranks_on_device(cell.device_id()) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing;
    use crate::words::Bytes;

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
