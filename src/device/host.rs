//! [`HostMemory`]: buffers on the host that a device copies to and from, and how they are lent to other threads.

use crate::common::{Bytes, DeviceId};
use crate::measure::alloc::Uncounted;

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

/// Waits until the copies to and from a buffer are done; the error says why they never will be. There is no limit, since
/// the device may have minutes of work before them: `measure.timeout` ends a cell that hangs.
pub type Arrival = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// A buffer that is lent to another thread, which reads and writes it only after its arrival.
pub struct Loan {
    pub memory: Box<dyn HostMemory>,
    pub arrival: Arrival,
}

const ADVICE: &str = "take a smaller model or batch, or keep the optimizer and activations off the host if [offload] has them there";

/// Checks that the host has so many bytes, `locked` of them in page-locked buffers, for what the device does not hold, and
/// that the recipe's `limit` allows them. A system that promises more memory than it has would end the process later,
/// without a message.
///
/// # Errors
/// Says how much is asked for, how much there is, and what to change.
pub fn require_host_memory(locked: u64, bytes: u64, limit: Option<u64>) -> Result<(), String> {
    if let Some(limit) = limit.filter(|limit| bytes > *limit) {
        let [locked, bytes, limit] = [locked, bytes, limit].map(Bytes);
        return Err(format!(
            "the host is out of memory: {bytes} are to be there, {locked} of them in page-locked buffers, and \
             measure.host_memory_limit is {limit}: raise it, or {ADVICE}"
        ));
    }
    let free = DeviceId::Cpu.info().memory_available;
    if free > 0 && bytes > free {
        let (bytes, free) = (Bytes(bytes), Bytes(free));
        return Err(format!("the host is out of memory: {bytes} are needed, and {free} are free: {ADVICE}"));
    }
    Ok(())
}

/// Why a cell ends whose process has more memory than the recipe allows.
pub fn beyond_host_limit(own: u64, limit: u64) -> String {
    format!(
        "the host is out of memory: the process has {}, page-locked memory included, and measure.host_memory_limit is \
         {}: raise it, or {ADVICE}",
        Bytes(own),
        Bytes(limit)
    )
}

/// The message for the user when the host gave no memory; `None` for any other error.
pub fn out_of_host_memory(error: &str) -> Option<String> {
    let start =
        ["the host has no ", "the host cannot lock "].into_iter().find_map(|words| error.find(words))?;
    Some(format!("{}: {ADVICE}", &error[start..]))
}
