//! [`DeviceLock`]: runs on the same device take turns cell by cell, since two at once would disturb each other's times.
//!
//! It consists of advisory locks on two files in the temporary folder, shared by all users of the machine. A run holds the
//! lock file while its cell runs. The next run holds the queue file, so that a run that has just finished a cell cannot take
//! the next turn as well. The system frees both locks when a process ends, however it ends.
//!
//! Anybody can put something else there under these names. What is no plain file is not opened as one: a pipe would hold the
//! run up for ever, and a link would lock the file of another program.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use miette::Result;
use nix::libc::{ELOOP, O_NOFOLLOW, O_NONBLOCK};

use super::again::TryAgain;

/// How often a waiting run tries again: short compared with a cell, long compared with a try.
const POLL: Duration = Duration::from_millis(50);

/// The lock of one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceLock {
    lock: PathBuf,
    queue: PathBuf,
}

/// How an attempt to take the lock ended.
#[derive(Debug)]
pub enum Turn {
    /// The device is ours until this is dropped.
    Ours(#[expect(dead_code, reason = "it is only held")] File),
    /// There is no lock, for this reason: nothing keeps other runs away.
    Unlocked(String),
    /// Cancelled while waiting.
    Cancelled,
}

impl DeviceLock {
    /// The lock of the device that recipes call `id`, with its files in `folder`. `visible` is CUDA_VISIBLE_DEVICES: with
    /// "2,3", the machine's GPU 3 is this process's "cuda:1".
    pub fn new(folder: &Path, id: &str, visible: Option<&str>) -> Self {
        let number = id.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        let of_machine = number.zip(visible).and_then(|(number, visible)| visible.split(',').nth(number));
        let id = of_machine.map_or(id.to_string(), |gpu| format!("cuda:{}", gpu.trim()));
        let id = id.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Self {
            lock: folder.join(format!("runner-{id}.lock")),
            queue: folder.join(format!("runner-{id}.queue")),
        }
    }

    /// Waits for this run's turn; calls `waiting` once if it has to wait.
    ///
    /// # Errors
    /// When the turn does not come within `limit`; names the lock file.
    pub fn take(&self, limit: Duration, cancel: &AtomicBool, waiting: &mut dyn FnMut()) -> Result<Turn> {
        let named = |path: &Path| open(path).map_err(|e| format!("cannot open {}: {e}", path.display()));
        let (queue, lock) = match named(&self.queue).and_then(|queue| Ok((queue, named(&self.lock)?))) {
            Ok(files) => files,
            Err(why) => return Ok(Turn::Unlocked(why)),
        };
        let deadline = Instant::now().checked_add(limit);
        let mut noticed = false;
        // Dropping the queue's file leaves the queue, once the lock is taken.
        for file in [&queue, &lock] {
            loop {
                match file.try_lock() {
                    Ok(()) => break,
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(e)) => {
                        return Ok(Turn::Unlocked(format!("cannot lock {}: {e}", self.lock.display())));
                    }
                }
                if !std::mem::replace(&mut noticed, true) {
                    waiting();
                }
                if cancel.load(Relaxed) {
                    return Ok(Turn::Cancelled);
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    let file = self.lock.display();
                    return Err(TryAgain {
                        message: format!(
                            "another run has held the device for more than {} s: {file} is locked",
                            limit.as_secs_f64()
                        ),
                        help: format!(
                            "end the other run (`fuser {file}` names it), or raise measure.timeout, which sets half of \
                             this limit"
                        ),
                    }
                    .into());
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(Turn::Ours(lock))
    }
}

/// Opens a lock file, and makes it if it is not there. Reading is enough for a lock, and is all that another user's file
/// allows.
fn open(path: &Path) -> io::Result<File> {
    match open_plain(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        // Readable by all users even under a strict umask.
        Ok(file) => file.set_permissions(Permissions::from_mode(0o644))?,
        // Another run was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    open_plain(path)
}

/// Opens a file that is there, at once, unless it is something else.
fn open_plain(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
    let file = file.map_err(|e| match e.raw_os_error() {
        Some(ELOOP) => io::Error::other("it is a symbolic link; remove it"),
        _ => e,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no plain file; remove it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);

    fn take(lock: &DeviceLock, cancel: bool) -> (Result<Turn>, usize) {
        let mut calls = 0;
        let turn = lock.take(SOON, &AtomicBool::new(cancel), &mut || calls += 1);
        (turn, calls)
    }

    #[test]
    fn held_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let lock = DeviceLock::new(folder.path(), "cuda:0", None);
        let (turn, notices) = take(&lock, false);
        let turn = turn.unwrap();
        assert!(matches!(turn, Turn::Ours(_)) && notices == 0);

        let (second, notices) = take(&lock, false);
        let error = second.unwrap_err().to_string();
        assert!(error.contains("runner-cuda-0.lock"), "{error}");
        assert_eq!(notices, 1, "one notice of the wait");
        assert!(matches!(take(&lock, true).0, Ok(Turn::Cancelled)));

        drop(turn);
        assert!(matches!(take(&lock, false).0, Ok(Turn::Ours(_))));
    }

    #[test]
    fn devices_do_not_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let _cpu = take(&DeviceLock::new(folder.path(), "cpu", None), false).0.unwrap();
        let other = take(&DeviceLock::new(folder.path(), "cuda:0", None), false);
        assert!(matches!(other.0, Ok(Turn::Ours(_))));
    }

    #[test]
    fn the_lock_is_that_of_the_gpu_which_the_process_sees() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |id, visible| DeviceLock::new(folder.path(), id, visible);
        let _third = take(&lock("cuda:1", Some("2, 3")), false).0.unwrap();
        for (id, visible, free) in [
            ("cuda:3", None, false),
            ("cuda:0", Some("3"), false),
            ("cuda:1", None, true),
            ("cuda:0", Some("2,3"), true),
            ("cuda:1", Some("3"), true),
            ("cpu", Some("2,3"), true),
        ] {
            let ours = matches!(take(&lock(id, visible), false).0, Ok(Turn::Ours(_)));
            assert_eq!(ours, free, "{id} of {visible:?}");
        }
    }

    /// Nothing is waited for, and the file behind a link stays as it is.
    #[test]
    fn what_is_no_plain_file_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (lock, other) = (folder.path().join("runner-cpu.lock"), folder.path().join("other"));
        std::fs::write(&other, "").unwrap();
        let held = File::open(&other).unwrap();
        held.lock().unwrap();
        let make = |kind: &str| match kind {
            "pipe" => {
                let made = std::process::Command::new("mkfifo").arg(&lock).status().expect("coreutils");
                assert!(made.success());
            }
            "link" => std::os::unix::fs::symlink(&other, &lock).unwrap(),
            _ => std::fs::create_dir(&lock).unwrap(),
        };
        for (kind, says) in
            [("pipe", "no plain file"), ("link", "symbolic link"), ("folder", "no plain file")]
        {
            make(kind);
            let start = Instant::now();
            match take(&DeviceLock::new(folder.path(), "cpu", None), false).0 {
                Ok(Turn::Unlocked(why)) => assert!(why.contains(says) && why.contains("remove it"), "{why}"),
                other => panic!("{other:?}"),
            }
            assert!(start.elapsed() < SOON, "{kind}");
            std::fs::remove_file(&lock).or_else(|_| std::fs::remove_dir(&lock)).unwrap();
        }
    }

    #[test]
    fn a_folder_without_lock_files_does_not_stop_the_run() {
        let lock = DeviceLock::new(Path::new("/proc"), "cpu", None);
        match take(&lock, false).0 {
            Ok(Turn::Unlocked(why)) => assert!(why.contains("/proc/runner-cpu.queue"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    /// A waiting run goes next. Without the queue, the run that holds the lock would nearly always take it again before the
    /// waiting run tries.
    #[test]
    fn runs_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let lock = DeviceLock::new(folder.path(), "cpu", None);
        let turns = std::sync::Mutex::new(Vec::new());
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let (lock, turns, start) = (&lock, &turns, &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..4 {
                        let limit = Duration::from_secs(20);
                        let _turn = lock.take(limit, &AtomicBool::new(false), &mut || {}).unwrap();
                        turns.lock().unwrap().push(name);
                        std::thread::sleep(3 * POLL);
                    }
                });
            }
        });
        let turns = turns.into_inner().unwrap();
        // The first hand-over may come before the second run has queued.
        let alternations = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(alternations >= 6, "{turns:?}");
    }
}
