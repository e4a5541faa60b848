//! A buffer on the host and a slot on the GPU, each with the copies that last touched it.

use crate::device::HostMemory;
use crate::device::cuda::{Later, Slot};

/// A buffer on the host and its last copies in each direction.
#[derive(Default)]
pub(super) struct Buffer {
    /// `None` while it is lent, and of a block that has none.
    pub memory: Option<Box<dyn HostMemory>>,
    /// The copy that last read it.
    pub read: Option<Later>,
    /// The copy that last wrote it.
    pub written: Option<Later>,
}

/// A slot and what last touched it.
pub(super) struct Place {
    pub slot: Slot,
    pub filled: Option<Later>,
    /// Kernels that read or wrote it.
    pub used: Option<Later>,
    pub sent: Option<Later>,
}
