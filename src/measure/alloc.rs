//! The counting allocator: exact live and peak bytes of the heap, and a limit.
//!
//! On the CPU every tensor lives on the heap, so the counts are exact to the byte. The counters are process-wide; a cell has
//! a process of its own. Counting begins with the first query, so that the threads of a process that never asks do not
//! contend for the counters.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};

#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::MmapMut;

use crate::common::Bytes;

static ON: AtomicBool = AtomicBool::new(false);
/// Bytes since counting began; below 0 where more was freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
static LIMIT: AtomicIsize = AtomicIsize::new(isize::MAX);

/// The system allocator, counted.
pub struct Counting;

impl Counting {
    /// Books `size` bytes; false, and nothing booked, when that would pass the limit.
    fn book(size: usize) -> bool {
        if !ON.load(Relaxed) {
            return true;
        }
        // No allocation is larger than isize::MAX.
        let size = size as isize;
        let live = LIVE.fetch_add(size, Relaxed) + size;
        if live > LIMIT.load(Relaxed) {
            LIVE.fetch_sub(size, Relaxed);
            return false;
        }
        // A load is quicker than a locked instruction, and most allocations make no peak.
        if live > PEAK.load(Relaxed) {
            PEAK.fetch_max(live, Relaxed);
        }
        true
    }

    fn unbook(size: usize) {
        if ON.load(Relaxed) {
            LIVE.fetch_sub(size as isize, Relaxed);
        }
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
        Self::unbook(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // While the block moves both copies may exist; only the result is booked.
        if new_size > layout.size() && !Self::book(new_size - layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is `System`'s.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        match (moved.is_null(), new_size > layout.size()) {
            (true, true) => Self::unbook(new_size - layout.size()),
            (false, false) => Self::unbook(layout.size() - new_size),
            _ => {}
        };
        moved
    }
}

/// Takes a failed allocation out of the books again.
fn counted(pointer: *mut u8, layout: Layout) -> *mut u8 {
    if pointer.is_null() {
        Counting::unbook(layout.size());
    }
    pointer
}

/// Bytes on the heap now, more than when counting began.
pub fn live() -> isize {
    ON.store(true, Relaxed);
    LIVE.load(Relaxed)
}

/// The most bytes on the heap since the last [`reset_peak`], as [`live`] counts them.
pub fn peak() -> isize {
    PEAK.load(Relaxed)
}

/// Starts a new peak at what is live now.
pub fn reset_peak() {
    PEAK.store(live(), Relaxed);
}

/// Makes every allocation of more than `bytes` beyond what is live now fail, which ends the process with
/// "memory allocation of N bytes failed".
pub fn set_limit(bytes: u64) {
    LIMIT.store(live().saturating_add_unsigned(usize::try_from(bytes).unwrap_or(usize::MAX)), Relaxed);
}

static UNCOUNTED: AtomicUsize = AtomicUsize::new(0);
static IN_FILES: AtomicUsize = AtomicUsize::new(0);

/// Bytes outside of the books now, of [`Room::Memory`] and of [`Room::Files`]; `None` where there are none.
pub fn outside() -> [Option<u64>; 2] {
    [&UNCOUNTED, &IN_FILES].map(|books| Some(books.load(Relaxed) as u64).filter(|bytes| *bytes > 0))
}

/// Bytes outside of the books: what on a GPU would be the host's memory, not the device's.
pub struct Uncounted {
    memory: MmapMut,
    /// Where it is counted.
    books: &'static AtomicUsize,
}

/// Where bytes outside of the books are.
#[derive(Clone, Debug)]
pub enum Room {
    /// Of the host.
    Memory,
    /// Mapped files without a name in this folder: they disappear with the process, however it ends.
    Files(PathBuf),
}

impl Room {
    /// Zeros.
    ///
    /// # Errors
    /// When there is no more room; says how much was asked for.
    pub fn take(&self, bytes: usize) -> Result<Uncounted, String> {
        match self {
            Self::Memory => Uncounted::new(bytes),
            Self::Files(folder) => Uncounted::in_file(folder, bytes).map_err(|e| {
                let folder = folder.display();
                format!("{NO_DISK}{} for the optimizer's state in {folder} ({e})", Bytes(bytes as u64))
            }),
        }
    }
}

/// The beginning of the error of a full disk.
pub const NO_DISK: &str = "the disk has no ";

/// Bytes of a file that are written at a time.
const PIECE: usize = 1 << 20;

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
        Ok(Self::counted(memory, &UNCOUNTED))
    }

    /// Zeros that are written: a disk without room is known now, not when the system writes pages back.
    fn in_file(folder: &Path, bytes: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut file = tempfile::tempfile_in(folder)?;
        let (zeros, bytes) = (vec![0; PIECE.min(bytes.max(1))], bytes.max(1));
        for start in (0..bytes).step_by(PIECE) {
            file.write_all(&zeros[..PIECE.min(bytes - start)])?;
        }
        // SAFETY: the file has no name, so nobody else opens it, makes it shorter or writes to it.
        let memory = unsafe { MmapMut::map_mut(&file) }?;
        Ok(Self::counted(memory, &IN_FILES))
    }

    fn counted(memory: MmapMut, books: &'static AtomicUsize) -> Self {
        books.fetch_add(memory.len(), Relaxed);
        Self { memory, books }
    }
}

impl std::ops::Deref for Uncounted {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl std::ops::DerefMut for Uncounted {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        self.books.fetch_sub(self.memory.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_what_is_written_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::Files(folder.path().join("state"));
        let mut bytes = room.take(PIECE + 5).expect("the disk has room");
        assert_eq!(bytes.len(), PIECE + 5);
        assert!(
            bytes.iter().all(|byte| *byte == 0) && outside()[1].is_some_and(|all| all >= bytes.len() as u64)
        );
        bytes[PIECE + 4] = 7;
        assert_eq!(bytes[PIECE + 4], 7);
        assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 0, "it has no name");
        fs::write(folder.path().join("file"), "").unwrap();
        let error = Room::Files(folder.path().join("file")).take(1 << 20).err().expect("no folder");
        assert!(error.starts_with("the disk has no 1.00 MiB for the optimizer's state in "), "{error}");
    }
}
