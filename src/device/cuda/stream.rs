//! The CUDA stream that Burn's own kernels run on, so that our calls are ordered with them.
//!
//! CubeCL keeps its stream private, but CUPTI announces every stream when it is created: the
//! announcements are subscribed to before the device is opened, and the one that arrives while a
//! CubeCL stream is first used is the handle behind it. CUPTI has one subscriber: under a profiler,
//! or without its library, our calls take a stream of their own and the host waits before and after
//! each of them, which is right but slow; [`Stream::path`] says which.

use std::ffi::c_void;
use std::sync::{Mutex, OnceLock};

use burn::tensor::StreamId;
use cubecl::client::Client;
use cudarc::cupti::sys as cupti;
use cudarc::driver::result::stream as driver_stream;
use cudarc::driver::sys::CUstream;
use serde::{Deserialize, Serialize};

use super::driver::Context;

/// Streams announced so far, as addresses.
static ANNOUNCED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

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
                return Err("the CUPTI library (libcupti.so) was not found".into());
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
            streams.push(stream as usize);
        }
    }
}

/// One CubeCL stream and the CUDA stream our own calls go to.
pub struct Stream {
    raw: Raw,
    path: Path,
    client: Client,
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
        let announced = || ANNOUNCED.lock().map_or(0, |streams| streams.len());
        let before = announced();
        // CubeCL makes a stream when something first asks where a buffer on it lies.
        let first = id.executes(|| client.empty(4));
        let _ = super::address(&client, &first);
        context.bind();
        let (raw, path) = match subscribe() {
            Ok(()) if announced() > before => {
                let last = ANNOUNCED.lock().ok().and_then(|streams| streams.last().copied());
                (last.unwrap_or_default() as CUstream, Path::Shared)
            }
            Ok(()) => own("the stream was in use before the runner could learn its handle".into()),
            Err(reason) => own(reason),
        };
        Self { raw: Raw(raw), path, client }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `submit` with the stream, after everything that was issued to CubeCL on this stream
    /// and before everything that will be. It runs on CubeCL's own thread, which has the device's
    /// context: one round trip, in which `submit` may ask CubeCL for addresses at no further cost.
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
        result
    }

    /// Waits until the device has done everything issued to CubeCL on this stream.
    pub fn synchronize(&self) {
        cubecl::future::block_on(self.client.sync()).expect("the device answers");
    }
}

fn own(reason: String) -> (CUstream, Path) {
    let kind = driver_stream::StreamKind::NonBlocking;
    let raw = driver_stream::create(kind).expect("a context can create a stream");
    (raw, Path::HostSynchronised(reason))
}
