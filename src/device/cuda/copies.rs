//! What copies that run at the same time as kernels need: a [`Slot`] of device memory that does not move, and
//! a [`CopyStream`] of our own.
//!
//! CubeCL does not order these copies with its kernels: a slot that is refilled while a kernel reads it, or
//! read before it is filled, gives wrong numbers and no error. [`CudaStore`](super::CudaStore) keeps them in order.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::server::{BufferBinding, Handle};
use cudarc::driver::result::stream;
use cudarc::driver::sys;

use super::stream::Raw;
use super::{Gpu, address};

/// Device memory that does not move while the slot lives.
pub(super) struct Slot {
    gpu: &'static Gpu,
    handle: Handle,
    pub pointer: u64,
    pub bytes: usize,
    /// Keeps CubeCL from moving the memory.
    _guard: Box<dyn Send>,
}

impl Slot {
    /// Its memory may be that of earlier tensors of this thread: the first copy into it comes after what
    /// this thread has issued so far.
    ///
    /// # Errors
    /// When the device is out of memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, String> {
        // The thread's stream must be known before its first buffer.
        gpu.lane();
        let client = gpu.client();
        let handle = client.memory_persistent_allocation((), |()| client.empty(bytes));
        let at = address(&client, &handle)?;
        Ok(Self { gpu, handle, pointer: at.pointer, bytes, _guard: Box::new(at) })
    }

    /// The part of the slot that begins at the byte `start` as a row-major tensor, without a copy: kernels
    /// that read it see what the slot holds when they run. Operators do not write to it, since the slot
    /// holds it too.
    ///
    /// # Panics
    /// When the part does not lie within the slot.
    pub fn part(&self, start: usize, shape: Shape, dtype: DType) -> CubeTensor {
        let rest = self.bytes.checked_sub(start + shape.num_elements() * dtype.size());
        let rest = rest.expect("a part lies within its slot");
        let handle = self.handle.clone().offset_start(start as u64).offset_end(rest as u64);
        let (client, device) = (self.gpu.client(), self.gpu.device.clone());
        CubeTensor::new_contiguous(client, device, shape, handle, dtype)
    }

    /// Keeps the slot's memory from being used for anything else.
    pub fn binding(&self) -> BufferBinding {
        self.handle.clone().binding()
    }
}

/// A stream for copies alone.
pub(super) struct CopyStream {
    gpu: &'static Gpu,
    raw: Raw,
}

impl CopyStream {
    /// # Errors
    /// When the driver has no stream to give.
    pub fn new(gpu: &'static Gpu) -> Result<Self, String> {
        gpu.context.bind();
        // Non-blocking: the default stream of other libraries must not hold the copies up.
        let raw = stream::create(stream::StreamKind::NonBlocking)
            .map_err(|e| format!("the device has no stream for copies: {e}"))?;
        Ok(Self { gpu, raw: Raw(raw) })
    }

    /// One whose kernels go before those of other streams where the device has room for either.
    ///
    /// # Errors
    /// When the driver has no stream to give.
    pub fn before_others(gpu: &'static Gpu) -> Result<Self, String> {
        gpu.context.bind();
        let (mut least, mut greatest, mut raw) = (0, 0, std::ptr::null_mut());
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the device's context is current; the calls write two integers and a stream.
        let made = unsafe {
            sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
                .result()
                .and_then(|()| sys::cuStreamCreateWithPriority(&mut raw, flags, greatest).result())
        };
        made.map_err(|e| format!("the device has no stream for collectives: {e}"))?;
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
