//! [`HostMemory`]: buffers on the host that copies to and from a device reach, and how they are lent to
//! other threads.

use std::time::Duration;

use super::DeviceId;
use crate::measure::alloc::Uncounted;
use crate::recipe::Bytes;

/// A buffer on the host; page-locked where a GPU copies to and from it.
pub trait HostMemory: Send {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl HostMemory for Uncounted {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Waits until the copies to and from a buffer are done, no longer than a limit; the error says that
/// they are not.
pub type Arrival = Box<dyn FnOnce(Duration) -> Result<(), String> + Send>;

/// A buffer in the hands of another thread, which touches it after its arrival only.
pub struct Loan {
    pub memory: Box<dyn HostMemory>,
    pub arrival: Arrival,
}

/// Whether the host has so much memory to give; a system that promises more than it has would end the
/// process later without a word.
///
/// # Errors
/// Says what the memory is for, how much it is, and how much there is.
pub fn require_host_memory(bytes: u64, purpose: &str) -> Result<(), String> {
    let free = DeviceId::Cpu.info().memory_available;
    if free > 0 && bytes > free {
        return Err(format!(
            "the host is out of memory: {purpose} need {}, and {} are free: take a smaller model, or leave \
             out offload.optimizer or offload.activations",
            Bytes(bytes),
            Bytes(free)
        ));
    }
    Ok(())
}
