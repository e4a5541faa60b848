//! [`Hold`]: what copies and kernels of a store wait for.

use cudarc::driver::sys::CUstream;

use crate::device::cuda::Later;

/// What a copy or a kernel waits for on the device. A store keeps all of these holds; a test leaves one out and
/// sees that the values are wrong.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A fill waits for the kernels that read or wrote its slot,
    FillForKernels,
    /// for the copy that sends what the slot holds,
    FillForSend,
    /// and for the copy that writes its buffer.
    FillForBuffer,
    /// Kernels that read a slot wait for its fill,
    KernelsForFill,
    /// and those that write it for the copy that sends what it holds.
    KernelsForSend,
    /// A send waits for the kernels that wrote its slot,
    SendForKernels,
    /// for the copy that fills the slot,
    SendForFill,
    /// and for the copy that reads its buffer.
    SendForBuffer,
}

/// What a stream gets from here on runs after the event; on CubeCL's thread.
pub(super) fn hold(stream: CUstream, later: &Later) {
    later.event().into_iter().for_each(|event| event.hold(stream));
}
