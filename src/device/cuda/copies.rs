//! Copies between page-locked host memory and slots on the device, beside the kernels.
//!
//! A [`CopyStream`] is a stream of our own; [`CopyStream::after_compute`] and
//! [`CopyStream::before_compute`] order it with the kernels of the calling thread through events on
//! the device. CubeCL knows nothing of these copies: a slot that is refilled while a kernel reads it,
//! or read before it is filled, gives wrong numbers and no error.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::server::{BufferBinding, Handle};
use cudarc::driver::result::{event, memcpy_dtoh_async, memcpy_htod_async, stream};
use cudarc::driver::sys::{self, CUstream};

use super::stream::Raw;
use super::{Event, Gpu, PinnedSlice, address};

/// Device memory that stays where it is for as long as the slot lives.
pub struct Slot {
    gpu: &'static Gpu,
    handle: Handle,
    pub(super) pointer: u64,
    pub(super) bytes: usize,
    /// Keeps CubeCL from moving the memory.
    _guard: Box<dyn Send>,
}

impl Slot {
    /// Its memory may be that of earlier tensors of this thread: call [`CopyStream::after_compute`]
    /// before the first upload.
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

    /// The slot's content as a row-major tensor, without a copy: kernels that read it see what the
    /// slot holds when they run. Operators do not write to it, since the slot holds it too.
    ///
    /// # Panics
    /// When `shape` elements of `dtype` are not exactly the slot's bytes.
    pub fn tensor(&self, shape: Shape, dtype: DType) -> CubeTensor {
        assert_eq!(shape.num_elements() * dtype.size(), self.bytes, "a tensor over a slot fills it");
        self.part(0, shape, dtype)
    }

    /// As [`tensor`](Self::tensor), over a part of the slot that begins at the byte `start`.
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
    pub(super) fn binding(&self) -> BufferBinding {
        self.handle.clone().binding()
    }
}

/// A copy that was issued. It owns the host's side until the device is done with it.
#[must_use = "dropping a copy waits for it"]
pub struct Transfer {
    /// `None` once handed back.
    host: Option<PinnedSlice>,
    done: Event,
    /// The device's side must not be given to another tensor before.
    _slot: Handle,
}

impl Transfer {
    /// Waits until the device has made the copy; gives the host memory back.
    pub fn wait(mut self) -> PinnedSlice {
        self.done.wait();
        self.host.take().expect("handed back once")
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // A device that no longer answers no longer copies either.
        let _ = self.done.try_wait();
    }
}

/// A stream for copies alone. Nothing here makes the host wait, unless products do so too
/// ([`StreamPath::HostSynchronised`](super::StreamPath)).
pub struct CopyStream {
    gpu: &'static Gpu,
    pub(super) stream: Raw,
}

impl CopyStream {
    /// # Errors
    /// When the driver has no stream to give.
    pub fn new(gpu: &'static Gpu) -> Result<Self, String> {
        gpu.context.bind();
        // Non-blocking: the default stream of other libraries must not hold the copies up.
        let raw = stream::create(stream::StreamKind::NonBlocking)
            .map_err(|e| format!("the device has no stream for copies: {e}"))?;
        Ok(Self { gpu, stream: Raw(raw) })
    }

    /// Copies issued from now on run after the kernels that this thread has issued so far: slots
    /// that those read may be refilled, tensors that those write may be downloaded.
    pub fn after_compute(&self) {
        let copies = self.stream;
        self.gpu.stream().submit(move |compute| order(compute, copies.stream()));
    }

    /// Kernels that this thread issues from now on run after the copies issued so far.
    pub fn before_compute(&self) {
        let copies = self.stream;
        self.gpu.stream().submit(move |compute| order(copies.stream(), compute));
    }

    /// Fills `to` from `from`.
    ///
    /// # Panics
    /// When the two differ in length or the driver refuses the copy.
    pub fn upload(&self, from: PinnedSlice, to: &Slot) -> Transfer {
        self.gpu.context.bind();
        assert_eq!(from.bytes().len(), to.bytes, "an upload fills its slot");
        // SAFETY: the slot holds as many bytes; the transfer keeps both sides alive, and the host's
        // unchanged, until the copy is done.
        unsafe { memcpy_htod_async(to.pointer, from.bytes(), self.stream.stream()) }
            .unwrap_or_else(|e| panic!("the device refused a copy of {} bytes: {e}", to.bytes));
        self.transfer(from, to)
    }

    /// Fills `to` with what `from` holds.
    ///
    /// # Panics
    /// As [`upload`](Self::upload).
    pub fn download(&self, from: &Slot, mut to: PinnedSlice) -> Transfer {
        self.gpu.context.bind();
        assert_eq!(to.bytes().len(), from.bytes, "a download takes the whole slot");
        // SAFETY: the slot holds as many bytes; the transfer keeps both sides alive, and the host's
        // unread, until the copy is done.
        unsafe { memcpy_dtoh_async(to.bytes_mut(), from.pointer, self.stream.stream()) }
            .unwrap_or_else(|e| panic!("the device refused a copy of {} bytes: {e}", from.bytes));
        self.transfer(to, from)
    }

    /// The copy between `host` and `slot` that was issued last.
    fn transfer(&self, host: PinnedSlice, slot: &Slot) -> Transfer {
        Transfer {
            host: Some(host),
            done: Event::record_on(self.stream.stream()),
            _slot: slot.handle.clone(),
        }
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        self.gpu.context.bind();
        // SAFETY: ours, and not used again; the driver frees it once its copies are done. A refusal
        // leaves the stream to the end of the process.
        let _ = unsafe { stream::destroy(self.stream.stream()) };
    }
}

/// What `then` is given from now on waits, on the device, for what `first` was given so far.
fn order(first: CUstream, then: CUstream) {
    let event = event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).expect("an event can be created");
    // SAFETY: the context is current and both streams are alive; the wait keeps what it needs of the
    // event, which is not used again.
    unsafe {
        event::record(event, first).expect("an event can be recorded");
        stream::wait_event(then, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
            .expect("a stream can wait for an event");
        event::destroy(event).expect("an event can be given back");
    }
}
