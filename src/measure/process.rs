//! The host's memory that this process takes: its resident set, and page-locked memory outside of it. File-backed pages of
//! programs, libraries and mapped files count separately: the system takes them back when it needs them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often the process is looked at.
const POLL: Duration = Duration::from_millis(10);
/// `/proc/self/status` is shorter.
const STATUS: usize = 8192;
/// A block of page-locked memory of this size is larger than any other change while it is made.
const TELLING: u64 = 16 << 20;

/// Bytes of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Resident and not file-backed, or page-locked.
    pub own: u64,
    pub file_backed: u64,
}

/// Resident bytes by the system's counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resident {
    anonymous: u64,
    shared: u64,
    file: u64,
}

impl Resident {
    /// Of this process; `None` where the system does not say. It takes no memory of the heap, which is counted.
    pub fn now() -> Option<Self> {
        let mut text = [0; STATUS];
        let length = File::open("/proc/self/status").ok()?.read_at(&mut text, 0).ok()?;
        Self::parse(std::str::from_utf8(&text[..length]).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let of = |name: &str| bytes(status, name);
        Some(Self { anonymous: of("RssAnon:")?, shared: of("RssShmem:")?, file: of("RssFile:")? })
    }
}

/// The bytes of a line of `/proc/self/status`, which has them in KiB.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The most resident bytes that this process had; `None` where there is no /proc.
pub fn process_peak_rss() -> Option<u64> {
    bytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

static LOCKED: AtomicU64 = AtomicU64::new(0);
/// Where the system counts page-locked memory: a [`Counted`] as a number.
static COUNTED: AtomicU8 = AtomicU8::new(Counted::Nowhere as u8);

/// The resident bytes among which page-locked memory counts: drivers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Nowhere,
    AsOwn,
    AsFile,
}

impl Counted {
    /// From what the counters were before and after a block of so many bytes was locked.
    fn of(bytes: u64, before: Resident, after: Resident) -> Self {
        let rose = |of: fn(&Resident) -> u64| of(&after).saturating_sub(of(&before)) > bytes / 2;
        match (rose(|r| r.anonymous + r.shared), rose(|r| r.file)) {
            (true, _) => Self::AsOwn,
            (false, true) => Self::AsFile,
            (false, false) => Self::Nowhere,
        }
    }
}

/// A block of `bytes` has been locked and written; `before`: what was resident before.
pub fn locked(bytes: u64, before: Option<Resident>) {
    LOCKED.fetch_add(bytes, Relaxed);
    if let (Some(before), Some(after), true) = (before, Resident::now(), bytes >= TELLING) {
        COUNTED.store(Counted::of(bytes, before, after) as u8, Relaxed);
    }
}

/// A block of `bytes` has been freed.
pub fn unlocked(bytes: u64) {
    LOCKED.fetch_sub(bytes, Relaxed);
}

impl ProcessMemory {
    /// Of this process now.
    pub fn now() -> Option<Self> {
        let locked = LOCKED.load(Relaxed);
        let counted = COUNTED.load(Relaxed);
        let of = |kind: Counted| if counted == kind as u8 { locked } else { 0 };
        let Resident { anonymous, shared, file } = Resident::now()?;
        Some(Self {
            own: anonymous + shared + of(Counted::Nowhere) + of(Counted::AsFile),
            file_backed: file.saturating_sub(of(Counted::AsFile)),
        })
    }

    /// The most of both since [`follow`] was called, at moments that may differ; `None` before.
    pub fn peak() -> Option<Self> {
        let peak = Self { own: OWN_PEAK.load(Relaxed), file_backed: FILE_PEAK.load(Relaxed) };
        (peak.own > 0).then_some(peak)
    }

    fn note(self) {
        OWN_PEAK.fetch_max(self.own, Relaxed);
        FILE_PEAK.fetch_max(self.file_backed, Relaxed);
    }
}

static OWN_PEAK: AtomicU64 = AtomicU64::new(0);
static FILE_PEAK: AtomicU64 = AtomicU64::new(0);

/// Follows the process until it ends, and calls `beyond` once it has more than `limit` bytes of its own.
pub fn follow(limit: Option<u64>, beyond: impl FnOnce(u64) + Send + 'static) {
    let watch = move || {
        while let Some(memory) = ProcessMemory::now() {
            memory.note();
            if limit.is_some_and(|limit| memory.own > limit) {
                return beyond(memory.own);
            }
            std::thread::sleep(POLL);
        }
    };
    // Where no thread starts, the peak stays unknown.
    drop(std::thread::Builder::new().name("host memory".into()).spawn(watch));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(anonymous: u64, shared: u64, file: u64) -> Resident {
        Resident { anonymous, shared, file }
    }

    #[test]
    fn the_systems_counters_are_read() {
        let status = "VmHWM:\t 9 kB\nRssAnon:\t     100 kB\nRssFile:\t  20 kB\nRssShmem:\t       3 kB\n";
        let Resident { anonymous, shared, file } = Resident::parse(status).expect("three counters");
        assert_eq!([anonymous, shared, file], [100 << 10, 3 << 10, 20 << 10]);
        assert!(Resident::parse("RssAnon:\t 100 kB\n").is_none());
        let now = ProcessMemory::now().expect("this system has them");
        assert!(now.own > 100 << 10 && now.file_backed > 100 << 10, "{now:?}");
    }

    #[test]
    fn page_locked_memory_counts_once_wherever_the_system_counts_it() {
        let before = resident(10, 0, 10);
        for (after, counted) in [
            (resident(12, 0, 10), Counted::Nowhere),
            (resident(110, 0, 10), Counted::AsOwn),
            (resident(10, 100, 10), Counted::AsOwn),
            (resident(10, 0, 110), Counted::AsFile),
        ] {
            assert_eq!(Counted::of(100, before, after), counted);
        }
    }
}
