//! Copies that run beside kernels need two things: a [`Slot`] of device memory that does not move, and a
//! [`CopyStream`] of our own.
//!
//! CubeCL does not order these copies with its kernels. A slot that is refilled while a kernel reads it, or
//! read before it is filled, gives wrong numbers and no error. [`CudaStore`](super::CudaStore) keeps them in order.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::result::stream;
use cudarc::driver::sys;

use super::stream::Raw;
use super::{Gpu, address, within};

/// Device memory that does not move while the slot lives.
pub(super) struct Slot {
    /// All of it, as bytes.
    whole: CubeTensor,
    pub pointer: u64,
    pub bytes: usize,
    /// Keeps CubeCL from moving the memory.
    _guard: Box<dyn Send>,
}

impl Slot {
    /// The memory may have held earlier tensors of this thread, so the first copy into it must come after what this
    /// thread has issued so far.
    ///
    /// # Errors
    /// When the device is out of memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, String> {
        // The thread's stream must be known before its first buffer.
        gpu.lane();
        let client = gpu.client();
        let handle = client.memory_persistent_allocation((), |()| client.empty(bytes));
        let at = address(&client, &handle)?;
        let shape = Shape::from([bytes]);
        let whole = CubeTensor::new_contiguous(client, gpu.device.clone(), shape, handle, DType::U8);
        Ok(Self { whole, pointer: at.pointer, bytes, _guard: Box::new(at) })
    }

    /// The part of the slot that begins at the byte `start` as a row-major tensor, without a copy. Kernels that read
    /// it see what the slot holds when they run. Operators do not write to it, since the slot holds it too.
    ///
    /// # Panics
    /// When the part does not lie within the slot.
    pub fn part(&self, start: usize, shape: Shape, dtype: DType) -> CubeTensor {
        within(&self.whole, start, shape, dtype)
    }
}

/// A stream beside CubeCL's, for copies or for NCCL.
pub(super) struct CopyStream {
    gpu: &'static Gpu,
    raw: Raw,
}

impl CopyStream {
    /// `first`: its kernels go before those of other streams where the device has room for either.
    ///
    /// # Errors
    /// When the driver has no stream to give.
    pub fn new(gpu: &'static Gpu, first: bool) -> Result<Self, String> {
        gpu.context.bind();
        let (mut least, mut greatest, mut raw) = (0, 0, std::ptr::null_mut());
        // The default stream of other libraries must not hold this one up.
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the device's context is current; the calls write two integers and a stream.
        let made = unsafe {
            sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest).result().and_then(|()| {
                // The least is 0, that of every other stream.
                let priority = if first { greatest } else { least };
                sys::cuStreamCreateWithPriority(&mut raw, flags, priority).result()
            })
        };
        made.map_err(|e| format!("the device has no stream besides CubeCL's: {e}"))?;
        Ok(Self { gpu, raw: Raw(raw) })
    }

    /// For any thread, as long as this lives.
    pub fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        self.gpu.context.bind();
        // SAFETY: ours, and not used again; the driver frees it once its copies are done. A refusal
        // leaves the stream to the end of the process.
        let _ = unsafe { stream::destroy(self.raw.stream()) };
    }
}
