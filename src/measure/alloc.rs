//! The counting allocator: exact live and peak bytes of the heap, and a limit.
//!
//! On the CPU every tensor lives on the heap, so the counts are exact to the byte. The counters
//! are process-wide; a cell has a process of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::MmapMut;

use crate::words::Bytes;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system allocator, counted.
pub struct Counting;

impl Counting {
    /// Books `size` bytes; false, and nothing booked, when that would pass the limit.
    fn book(size: usize) -> bool {
        let live = LIVE.fetch_add(size, Relaxed) + size;
        if live > LIMIT.load(Relaxed) {
            LIVE.fetch_sub(size, Relaxed);
            return false;
        }
        PEAK.fetch_max(live, Relaxed);
        true
    }
}

// SAFETY: every call is passed on to `System` unchanged; a null return, which the caller must
// handle anyway, is the only addition.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::book(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is `System`'s.
        counted(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !Self::book(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is `System`'s.
        counted(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.dealloc(pointer, layout) };
        LIVE.fetch_sub(layout.size(), Relaxed);
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // While the block moves both copies may exist; only the result is booked.
        if new_size > layout.size() && !Self::book(new_size - layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is `System`'s.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        match (moved.is_null(), new_size > layout.size()) {
            (true, true) => LIVE.fetch_sub(new_size - layout.size(), Relaxed),
            (false, false) => LIVE.fetch_sub(layout.size() - new_size, Relaxed),
            _ => 0,
        };
        moved
    }
}

/// Takes a failed allocation out of the books again.
fn counted(pointer: *mut u8, layout: Layout) -> *mut u8 {
    if pointer.is_null() {
        LIVE.fetch_sub(layout.size(), Relaxed);
    }
    pointer
}

/// Bytes on the heap now.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// The most bytes on the heap since the last [`reset_peak`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Starts a new peak at what is live now.
pub fn reset_peak() {
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// Makes every allocation beyond `bytes` live bytes fail, which ends the process with
/// "memory allocation of N bytes failed".
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
}

static UNCOUNTED: AtomicUsize = AtomicUsize::new(0);

/// Bytes outside of the books now; `None` where there are none.
pub fn uncounted() -> Option<u64> {
    Some(UNCOUNTED.load(Relaxed) as u64).filter(|bytes| *bytes > 0)
}

/// Bytes outside of the books: what on a GPU would be the host's memory, not the device's.
pub struct Uncounted(MmapMut);

impl Uncounted {
    /// Zeros.
    ///
    /// # Errors
    /// When the system has no more memory; says how much was asked for.
    pub fn new(bytes: usize) -> Result<Self, String> {
        let memory = MmapMut::map_anon(bytes.max(1)).map_err(|_| {
            format!("the host has no {} of memory for what is not on the device", Bytes(bytes as u64))
        })?;
        // Master weights and moments of 7B are 22 million pages of 4 KiB, each a fault when it is first
        // touched, or 44 thousand of 2 MiB. A system without large pages refuses, which costs time alone.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(Advice::HugePage);
        UNCOUNTED.fetch_add(memory.len(), Relaxed);
        Ok(Self(memory))
    }
}

impl std::ops::Deref for Uncounted {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for Uncounted {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        UNCOUNTED.fetch_sub(self.0.len(), Relaxed);
    }
}
