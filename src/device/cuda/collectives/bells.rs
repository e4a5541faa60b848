//! [`Bells`]: which messages the GPUs of this host have come to, in memory that the processes of the ranks share.
//!
//! A kernel of NCCL that waits for a message holds multiprocessors, which the kernels beside it then lack. So a rank that
//! receives waits on the host until the sender's stream has come to the message and has rung: it writes the message's
//! number. Ranks on other hosts share no memory; from them NCCL's kernel waits, and so it does where a host has no
//! `/dev/shm`.

use std::fs::{OpenOptions, remove_file};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUstream};
use memmap2::MmapMut;

use super::super::Gpu;
use crate::common::files::{STALE, remove_older};

/// How the files of boards are called, before the checksum of their ranks' id.
const PREFIX: &str = "runner-";

/// The bells of a rank, which its device can ring.
pub struct Bells {
    board: Board,
    /// Where the device sees the board.
    address: u64,
}

impl Bells {
    /// Every rank opens them before it joins the others, and calls [`met`](Self::met) behind that. `None` where this rank
    /// can share no memory.
    pub fn open(gpu: &Gpu, id: &[u8], rank: usize, ranks: usize) -> Option<Self> {
        gpu.context.bind();
        let mut board = Board::open(Path::new("/dev/shm"), id, rank, ranks).ok()?;
        let (start, bytes) = (board.memory.as_mut_ptr().cast(), board.memory.len());
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the context is current, and the memory is there until `drop`.
        unsafe { sys::cuMemHostRegister_v2(start, bytes, flags) }.result().ok()?;
        let mut address = 0;
        // SAFETY: the memory was registered for devices; `address` is written before use.
        let seen = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, start, 0) }.result();
        let bells = Self { board, address };
        seen.ok()?;
        // The device itself says that this rank is here: of one that cannot write there nobody waits for a bell.
        let stream = std::ptr::null_mut();
        let here = bells.write(bells.board.rank, 1, stream).and_then(|()| {
            // SAFETY: the context is current, and its own stream always there.
            unsafe { sys::cuStreamSynchronize(stream) }.result()
        });
        if here.is_err() {
            bells.board.word(bells.board.rank).store(0, Release);
            return None;
        }
        Some(bells)
    }

    /// All ranks have joined, so all of this host have opened the bells.
    pub fn met(self) -> Self {
        self.board.forget_file();
        self
    }

    /// Has the stream, which is alive and of this rank's device, ring once it comes here.
    ///
    /// # Errors
    /// The driver's.
    pub fn ring(&self, to: usize, message: u64, stream: CUstream) -> Result<(), String> {
        self.write(self.board.bell(self.board.rank, to), message as u32, stream)
            .map_err(|e| format!("the device cannot write to memory that ranks share: {e}"))
    }

    /// Has the stream write a word of the board once it comes here.
    fn write(&self, place: usize, word: u32, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: the board has a word there, and lives until the stream has ended.
        unsafe { sys::cuStreamWriteValue32_v2(stream, self.address + 4 * place as u64, word, 0) }.result()
    }

    /// Whether the device of this rank has come to its message, or nobody would say so.
    pub fn has_rung(&self, from: usize, message: u64) -> bool {
        self.board.has_rung(from, message)
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        // SAFETY: registered by `open`; no stream writes there any more.
        let _ = unsafe { sys::cuMemHostUnregister(self.board.memory.as_mut_ptr().cast()) };
    }
}

/// Words that the ranks of a host share: whether each is here, and then the last message of each to each, from 1.
struct Board {
    memory: MmapMut,
    file: PathBuf,
    rank: usize,
    ranks: usize,
}

impl Board {
    fn open(folder: &Path, id: &[u8], rank: usize, ranks: usize) -> io::Result<Self> {
        remove_forgotten(folder);
        let mut name = DefaultHasher::new();
        id.hash(&mut name);
        let file = folder.join(format!("{PREFIX}{:016x}", name.finish()));
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&file)?;
        // Zeros, where it was not as long before, of whole pages: devices are given no less.
        opened.set_len((4 * ranks * (1 + ranks)).next_multiple_of(4096) as u64)?;
        // SAFETY: only ranks of this id use the file, each word by one atomic operation, and nobody shortens it.
        let memory = unsafe { MmapMut::map_mut(&opened) }?;
        Ok(Self { memory, file, rank, ranks })
    }

    /// The place of the word for messages from one rank to another.
    fn bell(&self, from: usize, to: usize) -> usize {
        assert!(from < self.ranks && to < self.ranks, "ranks of this board");
        self.ranks * (1 + from) + to
    }

    fn word(&self, place: usize) -> &AtomicU32 {
        let words = self.memory.as_ptr().cast::<AtomicU32>();
        assert!(4 * place < self.memory.len(), "a word of the board");
        // SAFETY: within the memory, which is aligned as pages are, and used only by atomic operations and devices' writes.
        unsafe { &*words.add(place) }
    }

    fn has_rung(&self, from: usize, message: u64) -> bool {
        let is_here = self.word(from).load(Acquire) == 1;
        !is_here || self.word(self.bell(from, self.rank)).load(Acquire) >= message as u32
    }

    /// The memory stays as long as a process has it.
    fn forget_file(&self) {
        // Another rank may have done so.
        let _ = remove_file(&self.file);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.forget_file();
    }
}

/// Removes the files of ranks that were killed while they met.
fn remove_forgotten(folder: &Path) {
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    remove_older(folder, STALE, |name| name.strip_prefix(PREFIX).is_some_and(is_hash));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_of_killed_ranks_do_not_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = std::time::SystemTime::now() - 2 * STALE;
        for (name, stays, since) in [
            ("runner-0123456789abcdef", false, old),
            ("runner-0123456789abcdee", true, std::time::SystemTime::now()),
            ("runner-of-another-make", true, old),
        ] {
            let path = folder.path().join(name);
            std::fs::File::create(&path).and_then(|file| file.set_modified(since)).expect("a file");
            remove_forgotten(folder.path());
            assert_eq!(path.exists(), stays, "{name}");
        }
    }

    #[test]
    fn ranks_of_one_id_see_each_others_bells() {
        let folder = tempfile::tempdir().expect("a folder");
        let board = |id: &[u8], rank| Board::open(folder.path(), id, rank, 3).expect("memory");
        let [first, second, other] = [board(b"one", 0), board(b"one", 1), board(b"two", 0)];
        assert!(second.has_rung(0, 1), "of a rank that has not come nobody waits for a bell");
        first.word(0).store(1, Release);
        assert!(!second.has_rung(0, 1) && other.has_rung(0, 1), "a board for each id");
        first.word(first.bell(0, 1)).store(2, Release);
        assert!(second.has_rung(0, 1) && second.has_rung(0, 2) && !second.has_rung(0, 3));
        assert!(second.has_rung(2, 1), "rank 2 is on another host");
        first.forget_file();
        drop(other);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        first.word(first.bell(0, 1)).store(3, Release);
        assert!(second.has_rung(0, 3), "without the file too");
    }
}
