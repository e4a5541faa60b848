//! Device memory: what is in use, what CubeCL has reserved for it, and what the driver counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::Gpu;
use super::block::Block;
use cubecl::MemoryScope;
use cubecl::logging::{LaunchObservation, LaunchObserver};

/// Device memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In tensors and scratch buffers that are in use.
    pub live: u64,
    /// Held by CubeCL's pools, in use or not.
    pub reserved: u64,
    /// Taken from the driver by all processes on the device together, the driver's own needs included,
    /// without what a [`Ballast`] holds back.
    pub driver: u64,
}

impl Usage {
    /// Waits for CubeCL's queue, not for the device.
    pub fn now(gpu: &Gpu) -> Self {
        let pools = gpu.client().memory_report(MemoryScope::Device).usage();
        let (free, total) = gpu.context.memory();
        // The driver answers 0 and 0 where it fails.
        let driver = (total - free).saturating_sub(HELD_BACK.load(Relaxed));
        Self { live: pools.bytes_in_use, reserved: pools.bytes_reserved, driver }
    }
}

/// A parameter of at least so many bytes has memory of its own.
pub const LARGE: usize = 32 << 20;

impl Gpu {
    /// Makes a parameter of so many bytes. The pages of CubeCL's pools are as large as the largest tensor that they ever
    /// held. An embedding of 1 GiB in a pool would make all its later pages that large, and temporary tensors would leave
    /// most of each unused. So a large parameter gets memory of exactly its size, which goes back to the driver when it
    /// is freed.
    pub fn in_own_memory<T: Send>(&self, bytes: usize, make: impl FnOnce() -> T + Send) -> T {
        match bytes < LARGE {
            true => make(),
            false => self.client().memory_dedicated_allocation((), |()| make()),
        }
    }
}

static OBSERVED: AtomicBool = AtomicBool::new(false);
static LIVE_PEAK: AtomicU64 = AtomicU64::new(0);
static RESERVED_PEAK: AtomicU64 = AtomicU64::new(0);

/// Follows the memory in use until it is dropped. It asks CubeCL before every kernel and every matrix product, when
/// all that the launch needs is allocated, so it misses no peak. Each question waits for CubeCL's queue, so observed
/// steps are not timed.
pub struct PeakObservation {
    _launches: LaunchObservation,
}

impl PeakObservation {
    /// The peaks start at what is held now. One observation at a time.
    pub fn start(gpu: &'static Gpu) -> Self {
        LIVE_PEAK.store(0, Relaxed);
        RESERVED_PEAK.store(0, Relaxed);
        OBSERVED.store(true, Relaxed);
        observe(gpu);
        Self { _launches: LaunchObservation::new(Arc::new(Launches(gpu))) }
    }

    /// The most bytes in use, and the most bytes reserved, since the last call.
    pub fn take_peaks(&self) -> (u64, u64) {
        (LIVE_PEAK.swap(0, Relaxed), RESERVED_PEAK.swap(0, Relaxed))
    }
}

impl Drop for PeakObservation {
    fn drop(&mut self) {
        OBSERVED.store(false, Relaxed);
    }
}

struct Launches(&'static Gpu);

impl LaunchObserver for Launches {
    fn launched(&self, _kernel: &'static str) {
        observe(self.0);
    }
}

/// Notes what is held now, while an observation runs.
pub(super) fn observe(gpu: &Gpu) {
    if OBSERVED.load(Relaxed) {
        let pools = gpu.client().memory_report(MemoryScope::Device).usage();
        LIVE_PEAK.fetch_max(pools.bytes_in_use, Relaxed);
        RESERVED_PEAK.fetch_max(pools.bytes_reserved, Relaxed);
    }
}

/// Memory that is taken from the driver and left unused, so that the rest is as much as on a smaller card.
pub struct Ballast {
    blocks: Vec<Block>,
    bytes: u64,
}

/// Bytes of all ballasts.
static HELD_BACK: AtomicU64 = AtomicU64::new(0);

/// The driver hands memory out in pages of 2 MiB; a limit is kept to within some of them.
const SMALLEST: u64 = 32 << 20;

impl Ballast {
    /// Leaves `limit` bytes for this process from here on, including what it already holds; `None` when the
    /// device has no more than that.
    ///
    /// # Errors
    /// When the device refuses the allocation.
    pub fn leaving(gpu: &Gpu, limit: u64) -> Result<Option<Self>, String> {
        let (free, _) = gpu.context.memory();
        let left = limit.saturating_sub(Usage::now(gpu).reserved);
        let Some(bytes) = free.checked_sub(left).filter(|bytes| *bytes > 0) else { return Ok(None) };
        // What is free need not lie in one piece: where a block is refused, two halves are tried.
        let (mut blocks, mut missing, mut size) = (Vec::new(), bytes, bytes);
        while missing > 0 {
            match Block::new(size.min(missing) as usize) {
                Ok(block) => {
                    blocks.push(block);
                    missing -= size.min(missing);
                }
                Err(_) if size > SMALLEST => size = (size / 2).max(SMALLEST),
                // The rest is the driver's own.
                Err(_) if missing <= bytes / 100 => break,
                Err(e) => {
                    return Err(format!(
                        "the device gives up {missing} of {bytes} bytes less than asked: {e}"
                    ));
                }
            }
        }
        let bytes = bytes - missing;
        HELD_BACK.fetch_add(bytes, Relaxed);
        Ok(Some(Self { blocks, bytes }))
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        self.blocks.clear();
        HELD_BACK.fetch_sub(self.bytes, Relaxed);
    }
}
