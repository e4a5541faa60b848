//! Events in the device's stream: times without the host waiting inside what is timed.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUevent, CUresult, CUstream};

use super::Gpu;

/// A place in the stream of the thread that recorded it.
pub struct Event(CUevent);

// SAFETY: an event may be waited for and destroyed by any thread.
unsafe impl Send for Event {}
// SAFETY: as above, also through a shared reference.
unsafe impl Sync for Event {}

/// Between two looks at an event: short against the copies of milliseconds that are waited for.
const PAUSE: Duration = Duration::from_micros(50);

impl Event {
    /// Records an event behind everything issued so far on this thread's stream.
    pub fn record(gpu: &Gpu) -> Self {
        gpu.stream().submit(Self::record_on)
    }

    /// Records an event in `stream`, which is alive; the device's context is current.
    pub(super) fn record_on(stream: CUstream) -> Self {
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: the context is current, the stream is alive, `event` is written before use.
        unsafe {
            sys::cuEventCreate(&mut event, flags).result().expect("an event can be created");
            sys::cuEventRecord(event, stream).result().expect("an event can be recorded");
        }
        Self(event)
    }

    /// Records an event in `stream`, whose launches are being recorded, for those who wait outside of the graph.
    fn record_in_graph(stream: CUstream) -> Result<Self, DriverError> {
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current and `event` is written before use.
        unsafe { sys::cuEventCreate(&mut event, flags) }.result()?;
        let event = Self(event);
        let outside = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: the stream is alive, and whoever holds the graph holds the event.
        unsafe { sys::cuEventRecordWithFlags(event.0, stream, outside) }.result()?;
        Ok(event)
    }

    /// Makes later work of `stream`, which is alive, wait on the device for this event.
    pub(super) fn hold(&self, stream: CUstream) {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as u32;
        // SAFETY: the event was recorded and is destroyed only by `drop`; the stream is alive, and the
        // wait keeps what it needs of the event.
        unsafe { sys::cuStreamWaitEvent(stream, self.0, flags) }
            .result()
            .expect("a stream can wait for an event");
    }

    /// Waits until the device has reached this event.
    pub fn wait(&self) {
        self.try_wait().expect("the device answers");
    }

    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    /// When something before the event failed.
    pub(super) fn try_wait(&self) -> Result<(), DriverError> {
        // SAFETY: the event was recorded and is destroyed only by `drop`.
        unsafe { sys::cuEventSynchronize(self.0) }.result()
    }

    /// As [`wait`](Self::wait), but the thread sleeps and looks every [`PAUSE`]: the driver's own wait would
    /// keep a core busy that other threads need.
    ///
    /// # Errors
    /// When something before the event failed.
    pub(super) fn arrived(&self) -> Result<(), String> {
        loop {
            match self.reached() {
                Ok(true) => return Ok(()),
                Ok(false) => std::thread::sleep(PAUSE),
                Err(error) => {
                    return Err(format!(
                        "the device failed before a copy that is waited for ({:?}): run this again, and \
                         without offload.optimizer if it fails again",
                        error.0
                    ));
                }
            }
        }
    }

    /// Whether the device has come to this event.
    ///
    /// # Errors
    /// When something before the event failed.
    pub(super) fn reached(&self) -> Result<bool, DriverError> {
        // SAFETY: the event was recorded and is destroyed only by `drop`.
        match unsafe { sys::cuEventQuery(self.0) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            error => Err(DriverError(error)),
        }
    }

    /// Seconds from `earlier` to this event, both reached; waits for this one. Below 0 where `earlier` came later, in
    /// another stream.
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        self.wait();
        let mut milliseconds = 0.0f32;
        // SAFETY: both events were recorded in the same context and have been reached.
        unsafe { sys::cuEventElapsedTime(&mut milliseconds, earlier.0, self.0) }
            .result()
            .expect("both events were reached");
        f64::from(milliseconds) / 1e3
    }
}

/// An event that CubeCL's thread records when it comes to it. The thread that asked for it goes on at once. Later calls on
/// CubeCL's thread find the event recorded.
#[derive(Clone, Default)]
pub(super) struct Later(Arc<OnceLock<Event>>);

impl Later {
    /// Behind everything issued so far on this thread's stream.
    pub fn behind(gpu: &Gpu) -> Self {
        let later = Self::default();
        let own = later.clone();
        gpu.stream().issue(move |stream| own.record_on(stream));
        later
    }

    /// As [`Event::record_on`], once, on CubeCL's thread.
    pub fn record_on(&self, stream: CUstream) {
        self.0.get_or_init(|| Event::record_on(stream));
    }

    /// The event; `None` where the thread has not come to it, or failed before.
    pub fn event(&self) -> Option<&Event> {
        self.0.get()
    }
}

/// A place in the stream of the thread that made it, which no thread waits for.
pub struct Stamp(Later);

impl Stamp {
    /// Behind everything issued so far on this thread's stream.
    pub fn new(gpu: &Gpu) -> Self {
        Self(Later::behind(gpu))
    }

    /// Seconds from an event of the same device to this place; below 0 where it came first.
    ///
    /// # Panics
    /// When the device has not been [synchronised](Gpu::synchronize) since.
    pub fn seconds_since(&self, earlier: &Event) -> f64 {
        self.0.event().expect("the device has come here").seconds_since(earlier)
    }
}

/// A place in launches that are being recorded. Once the graph has been launched, other streams can wait for it to come
/// there.
#[derive(Clone)]
pub struct Mark(pub(super) Arc<OnceLock<Arc<Event>>>);

impl Mark {
    /// Behind everything issued so far on this thread's stream, on the device of this tensor.
    pub fn behind(tensor: &CubeTensor) -> Self {
        Self::new(Gpu::of(tensor).expect("a CUDA tensor"))
    }

    /// Behind everything issued so far on this thread's stream.
    pub fn new(gpu: &Gpu) -> Self {
        let mark = Arc::<OnceLock<Arc<Event>>>::default();
        let own = mark.clone();
        gpu.stream().enqueue(None, move |_, stream| {
            let event = Event::record_in_graph(stream)
                .map_err(|e| format!("a place in a recorded step cannot be marked: {e}"))?;
            let _ = own.set(Arc::new(event));
            Ok(())
        });
        Self(mark)
    }
}

impl From<Event> for Later {
    fn from(event: Event) -> Self {
        Self(Arc::new(event.into()))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: not used again; the driver frees it once the device has passed it.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
