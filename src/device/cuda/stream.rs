//! The CUDA stream that Burn's own kernels run on, so that our calls are ordered with them.
//!
//! CubeCL keeps its stream private, but CUPTI announces every stream when it is created: the
//! announcements are subscribed to before the device is opened, and the one that arrives while a
//! CubeCL stream is first used is the handle behind it. CUPTI has one subscriber: under a profiler,
//! or without its library, our calls take a stream of their own and the host waits before and after
//! each of them, which is correct but slow; [`Stream::path`] says which of the two holds.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};

use burn::tensor::StreamId;
use cubecl::client::Client;
use cubecl::device_handle::DeviceHandle;
use cubecl::server::{BufferBinding, ServerError, ServerStorage};
use cubecl_server::stream::{ExecuteScope, WriteScoped as _};
use cudarc::cupti::sys as cupti;
use cudarc::driver::result::stream as driver_stream;
use cudarc::driver::sys::CUstream;
use serde::{Deserialize, Serialize};

use super::driver::Context;
use super::{Address, Server};
use crate::common::refusal::message;

/// Streams announced so far, as addresses, and the threads that made them.
static ANNOUNCED: Mutex<Vec<(ThreadId, usize)>> = Mutex::new(Vec::new());

/// How our calls are ordered with CubeCL's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// On CubeCL's own stream.
    Shared,
    /// On another stream, with the host waiting before and after; the reason why.
    HostSynchronised(String),
}

/// Starts listening for new streams, once; call it before the device is opened.
///
/// # Errors
/// Why CUPTI cannot be used.
pub fn subscribe() -> Result<(), String> {
    static SUBSCRIBED: OnceLock<Result<(), String>> = OnceLock::new();
    SUBSCRIBED
        .get_or_init(|| {
            // SAFETY: only tries to load the library; cudarc panics at the first call without it.
            if !unsafe { cupti::is_culib_present() } {
                return Err("CUPTI (libcupti.so) was not found; `runner devices` lists what is".into());
            }
            let mut subscriber = std::ptr::null_mut();
            // SAFETY: `announce` has the signature CUPTI calls and lives as long as the process.
            unsafe {
                cupti::cuptiSubscribe(&mut subscriber, Some(announce), std::ptr::null_mut())
                    .result()
                    .map_err(|e| format!("CUPTI is taken, by a profiler perhaps ({e:?})"))?;
                cupti::cuptiEnableCallback(
                    1,
                    subscriber,
                    cupti::CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE,
                    cupti::CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_STREAM_CREATED as u32,
                )
                .result()
                .map_err(|e| format!("CUPTI does not announce streams ({e:?})"))
            }
        })
        .clone()
}

/// CUPTI calls it when a stream is made.
///
/// # Safety
/// `data` is what CUPTI hands to a callback of this domain and number.
unsafe extern "C" fn announce(
    _: *mut c_void,
    domain: cupti::CUpti_CallbackDomain,
    id: cupti::CUpti_CallbackId,
    data: *const c_void,
) {
    let created = cupti::CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_STREAM_CREATED as u32;
    if domain == cupti::CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE && id == created {
        // SAFETY: for this callback `data` is a CUpti_ResourceData whose union holds the stream.
        let stream = unsafe { *(*data.cast::<cupti::CUpti_ResourceData>()).resourceHandle.stream.as_ref() };
        // A panic must not cross into CUPTI; a poisoned list only means the fallback is taken.
        if let Ok(mut streams) = ANNOUNCED.lock() {
            streams.push((thread::current().id(), stream as usize));
        }
    }
}

/// One CubeCL stream and the CUDA stream our own calls go to.
pub struct Stream {
    raw: Raw,
    path: Path,
    client: Client,
    /// CubeCL's own queue of work for the device, which its thread runs in order.
    queue: DeviceHandle<Server>,
    /// What went wrong in a call that nobody waited for.
    failed: Arc<Mutex<Option<String>>>,
}

/// Where CubeCL's buffers lie, asked on its thread.
pub struct Buffers<'a>(&'a mut Server);

impl Buffers<'_> {
    /// # Errors
    /// When the buffer could not be allocated or what should have filled it failed.
    pub fn locate(&mut self, buffer: BufferBinding) -> Result<Address<impl Sized + use<>>, String> {
        // A graph that is being recorded keeps the page as it is; CubeCL says so of its own launches.
        if let Some(capture) = self.0.capturing(StreamId::current()) {
            capture.touch(buffer.stream, buffer.memory.descriptor().location());
        }
        super::located(self.0.get_resource(buffer, StreamId::current()))
    }
}

/// A stream that any thread may use, as CUDA allows.
#[derive(Clone, Copy)]
pub(super) struct Raw(pub(super) CUstream);

// SAFETY: a CUDA stream may be used from any thread.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    pub(super) fn stream(self) -> CUstream {
        self.0
    }
}

impl Stream {
    /// Opens the CubeCL stream `id`, which must not have been used before.
    pub fn open(mut client: Client, id: StreamId, context: &Context) -> Self {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock();
        // SAFETY: this clone of the client is used for this stream alone.
        unsafe { client.set_stream(id) };
        // On CubeCL's own thread; NCCL makes streams at the same time, on others.
        let maker = client.exclusive(|| thread::current().id()).ok();
        let announced = || -> Vec<usize> {
            let Ok(streams) = ANNOUNCED.lock() else { return Vec::new() };
            streams.iter().filter(|(thread, _)| Some(*thread) == maker).map(|(_, stream)| *stream).collect()
        };
        let before = announced().len();
        // CubeCL makes a stream when something first asks where a buffer on it lies.
        let first = id.executes(|| client.empty(4));
        let _ = super::address(&client, &first);
        context.bind();
        let (raw, path) = match subscribe() {
            Ok(()) if let [.., last] = announced()[before..] => (last as CUstream, Path::Shared),
            Ok(()) => own("the stream was in use before the runner could learn its handle".into()),
            Err(reason) => own(reason),
        };
        let queue = DeviceHandle::new(client.service_id().device);
        Self { raw: Raw(raw), path, client, queue, failed: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `submit` with the stream, after everything that was issued on this stream, to CubeCL and
    /// here, and before everything that will be. It runs on CubeCL's own thread, which has the device's
    /// context: one round trip, in which `submit` may ask CubeCL for addresses at no further cost.
    ///
    /// # Panics
    /// When an earlier [`enqueue`](Self::enqueue) failed.
    pub fn submit<T: Send + 'static>(&self, submit: impl FnOnce(CUstream) -> T + Send) -> T {
        let raw = self.raw;
        if self.path != Path::Shared {
            self.synchronize();
        }
        let result = self.client.exclusive(move || submit(raw.stream()));
        let result = result.unwrap_or_else(|e| panic!("a call on the device's thread failed: {e:?}"));
        if self.path != Path::Shared {
            // SAFETY: the stream is ours and never destroyed.
            unsafe { driver_stream::synchronize(raw.stream()) }.expect("the device answers");
        }
        self.check();
        result
    }

    /// As [`submit`](Self::submit), but this thread goes on at once. An error of `call` is raised by the
    /// next `submit` or [`synchronize`](Self::synchronize), and by reading `written`, the buffer that
    /// `call` should have filled, or anything computed from it.
    ///
    /// Buffers go in as bindings, which keep their memory from being used again, as the handles do, and
    /// leave the tensors free to be written in place.
    pub fn enqueue<F>(&self, written: Option<BufferBinding>, call: F)
    where
        F: FnOnce(&mut Buffers<'_>, CUstream) -> Result<(), String> + Send + 'static,
    {
        if self.path != Path::Shared {
            self.synchronize();
        }
        let (raw, failed) = (self.raw, self.failed.clone());
        self.queue.submit(move |server| {
            // A panic would end CubeCL's thread.
            let called = catch_unwind(AssertUnwindSafe(|| call(&mut Buffers(&mut *server), raw.stream())));
            let failed_by = |panic: Box<dyn Any + Send>| {
                Err(format!("a call on the device's thread failed: {}", message(&*panic)))
            };
            let called = called.unwrap_or_else(failed_by);
            let Err(reason) = called else { return };
            if let Ok(mut failed) = failed.lock() {
                failed.get_or_insert(reason.clone());
            }
            // CubeCL marks what work leaves unwritten when that work fails.
            let error = ServerError::Generic { reason, backtrace: Default::default() };
            let scope = ExecuteScope::over(server, StreamId::current(), written.into_iter().collect());
            let _ = scope.execute(|_| Err::<(), _>(error));
        });
        if self.path != Path::Shared {
            self.submit(|_| ());
        }
    }

    /// As [`enqueue`](Self::enqueue), of a call that needs no buffer and cannot fail.
    pub fn issue(&self, call: impl FnOnce(CUstream) + Send + 'static) {
        self.enqueue(None, move |_, stream| {
            call(stream);
            Ok(())
        });
    }

    /// Waits until the device has done everything issued on this stream.
    ///
    /// # Panics
    /// As [`submit`](Self::submit).
    pub fn synchronize(&self) {
        cubecl::future::block_on(self.client.sync()).expect("the device answers");
        self.check();
    }

    /// Forgets what went wrong in a call that nobody waited for.
    pub fn forget_failure(&self) {
        if let Ok(mut failed) = self.failed.lock() {
            failed.take();
        }
    }

    /// Runs on CubeCL's thread, after what it was given so far.
    pub(super) fn on_server(&self, call: impl FnOnce(&mut Server) + Send + 'static) {
        self.queue.submit(call);
    }

    /// Has CubeCL's thread begin with what it was given; it otherwise waits until that is a batch.
    pub fn hurry(&self) {
        self.queue.flush_queue();
    }

    /// Waits until CubeCL's thread has made every call so far, also one that failed.
    pub fn flush(&self) {
        // A thread that has ended makes no calls.
        let _ = self.client.exclusive(|| ());
    }

    fn check(&self) {
        let failed = self.failed.lock().ok().and_then(|mut failed| failed.take());
        if let Some(e) = failed {
            panic!("{e}");
        }
    }
}

fn own(reason: String) -> (CUstream, Path) {
    let kind = driver_stream::StreamKind::NonBlocking;
    let raw = driver_stream::create(kind).expect("a context can create a stream");
    (raw, Path::HostSynchronised(reason))
}
