//! Page-locked host memory: only this does a copy engine read and write at full rate and without a copy in between.

use crate::common::Bytes;
use crate::measure::process::{self, Resident};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cudarc::driver::sys;

use super::Gpu;
use crate::device::host::HostMemory;

static PINNED: AtomicU64 = AtomicU64::new(0);

/// Bytes that are page-locked now.
pub(super) fn pinned() -> u64 {
    PINNED.load(Relaxed)
}

/// A block of page-locked memory, freed with its last slice.
struct Block {
    start: *mut u8,
    length: usize,
}

// SAFETY: plain memory; who may write which part when is settled by `PinnedSlice`.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated by cuMemHostAlloc and no longer referred to.
        unsafe { sys::cuMemFreeHost(self.start.cast()) };
        PINNED.fetch_sub(self.length as u64, Relaxed);
        process::unlocked(self.length as u64);
    }
}

/// Hands out disjoint slices of one block, front to back. All slices are freed together.
pub struct PinnedArena {
    block: Arc<Block>,
    used: usize,
}

/// A part of an arena that nobody else has.
pub struct PinnedSlice {
    block: Arc<Block>,
    offset: usize,
    length: usize,
}

/// Slices start at multiples of this, the alignment of CUDA's own allocations.
const ALIGNMENT: usize = 512;

impl PinnedArena {
    /// # Errors
    /// When the host cannot lock that much memory; says how much was asked for.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self, String> {
        gpu.context.bind();
        let before = Resident::now();
        let mut start = std::ptr::null_mut();
        // SAFETY: the context is current and `start` is written before use.
        unsafe { sys::cuMemHostAlloc(&mut start, bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE) }
            .result()
            .map_err(|e| {
                let bytes = Bytes(bytes as u64);
                format!(
                    "the host cannot lock {bytes} of memory for the GPU, besides what is locked already: {e}"
                )
            })?;
        // SAFETY: the block holds `bytes` bytes, and nobody else has it yet.
        zero(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) });
        PINNED.fetch_add(bytes as u64, Relaxed);
        process::locked(bytes as u64, before);
        Ok(Self { block: Arc::new(Block { start: start.cast(), length: bytes }), used: 0 })
    }

    /// The next `bytes` bytes; `None` when the arena is full.
    pub fn take(&mut self, bytes: usize) -> Option<PinnedSlice> {
        let offset = self.used.next_multiple_of(ALIGNMENT);
        let end = offset.checked_add(bytes).filter(|end| *end <= self.block.length)?;
        self.used = end;
        Some(PinnedSlice { block: self.block.clone(), offset, length: bytes })
    }
}

/// Zeroes the block, so that every later read is defined. One core zeroes some 6 GB/s: the 26 GB of a 7B model
/// would take it seconds.
fn zero(memory: &mut [MaybeUninit<u8>]) {
    let threads = rayon::current_num_threads();
    // A thread for each 64 MiB.
    let share = memory.len().div_ceil(threads).max(64 << 20);
    std::thread::scope(|scope| {
        for part in memory.chunks_mut(share) {
            scope.spawn(|| part.fill(MaybeUninit::new(0)));
        }
    });
}

impl PinnedSlice {
    fn start(&self) -> *mut u8 {
        // SAFETY: `take` keeps offset + length within the block.
        unsafe { self.block.start.add(self.offset) }
    }
}

impl HostMemory for PinnedSlice {
    fn bytes(&self) -> &[u8] {
        // SAFETY: initialised by the arena, disjoint from every other slice, alive with the block.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}
