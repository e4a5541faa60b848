//! What a device did when: kernels and copies with their times, in files and in numbers.

mod chrome;
mod crossings;
mod host;
mod host_work;
mod profile;
mod scope;
mod summary;

use serde::{Deserialize, Serialize};

pub use chrome::{FOLDER, chrome_trace, path, read_chrome_trace};
pub use crossings::{Mark, crossings};
pub use host::HostRecording;
pub use host_work::{follow_host_work, note_host_work, take_host_work};
pub use profile::{EXCHANGE, KernelTime, Part, Profile};
pub use scope::{Follower, Scope, follow};
pub use summary::{Summary, Transfers, span};

/// One kernel or copy; on the CPU an operator without those inside of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub kind: ActivityKind,
    /// The kernel's name, shortened; for a copy its direction, for a mark the [`Mark`].
    pub name: String,
    /// The innermost operator that issued it, where the recording knows it.
    pub operator: Option<String>,
    /// The device's number of the stream it ran on.
    pub stream: u32,
    /// Nanoseconds on the device's clock.
    pub start: u64,
    pub end: u64,
    /// Bytes copied; 0 for a kernel.
    pub bytes: u64,
}

impl Activity {
    /// Of stream 0 until it gets another, without an operator or bytes.
    pub fn new(kind: ActivityKind, name: impl Into<String>, [start, end]: [u64; 2]) -> Self {
        Self { kind, name: name.into(), operator: None, stream: 0, start, end, bytes: 0 }
    }
}

/// The stream of what the host computes, which no device gives out.
pub const HOST: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    /// It computes.
    Kernel,
    /// A kernel of NCCL: it moves data between ranks, or waits for another rank.
    Exchange,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// What the host computed for the step; its stream is [`HOST`].
    HostUpdate,
    /// A place in the stream of the kernels, a [`Mark`]; it computes nothing.
    Mark,
}

impl ActivityKind {
    /// Of the kernel of this name, which may be mangled.
    pub fn of_kernel(name: &str) -> Self {
        if name.contains("ncclDevKernel") { Self::Exchange } else { Self::Kernel }
    }
}
