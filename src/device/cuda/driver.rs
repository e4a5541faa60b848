//! What the NVIDIA driver says about its devices, and the context that our own calls run in.

use std::sync::OnceLock;

use cudarc::driver::result::{ctx, device, mem_get_info, primary_ctx};
use cudarc::driver::sys::{self, CUcontext, CUdevice_attribute as Attribute};
use nvml_wrapper::Nvml;

use crate::common::text::hex;
use crate::device::Capability;

/// Devices the driver reports; 0 where there is no driver.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: only tries to load the library; cudarc panics at the first call without it.
        if !unsafe { sys::is_culib_present() } || cudarc::driver::result::init().is_err() {
            return 0;
        }
        device::get_count().map_or(0, |count| count.max(0) as usize)
    })
}

/// What the driver says about one device.
#[derive(Clone, Debug)]
pub struct Properties {
    pub name: String,
    pub memory_total: u64,
    /// Bytes that no process has taken.
    pub memory_free: u64,
    pub multiprocessors: usize,
}

/// The driver's handle of the device with this number.
///
/// # Panics
/// When `ordinal` is not below [`count`].
fn handle(ordinal: usize) -> sys::CUdevice {
    device::get(ordinal as i32).expect("the ordinal is below the device count")
}

/// The compute capability of the device itself, which kernels are compiled for.
///
/// # Panics
/// When `ordinal` is not below [`count`].
pub fn architecture(ordinal: usize) -> Capability {
    let handle = handle(ordinal);
    // SAFETY: `handle` is a device of the initialised driver; the call only reads.
    let attribute = |which| unsafe { device::get_attribute(handle, which).unwrap_or(0) }.max(0) as u32;
    Capability::new(
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

/// Bytes of shared memory that a block may ask for on the device itself.
///
/// # Panics
/// When `ordinal` is not below [`count`].
pub fn shared_memory(ordinal: usize) -> usize {
    let which = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    // SAFETY: a device of the initialised driver; the call only reads.
    unsafe { device::get_attribute(handle(ordinal), which) }.map_or(0, |bytes| bytes as usize)
}

/// # Panics
/// When `ordinal` is not below [`count`].
pub fn name(ordinal: usize) -> String {
    device::get_name(handle(ordinal)).unwrap_or_else(|_| "NVIDIA GPU".into())
}

/// # Panics
/// When `ordinal` is not below [`count`].
pub fn properties(ordinal: usize) -> Properties {
    let handle = handle(ordinal);
    // SAFETY: `handle` is a device of the initialised driver; both calls only read.
    let (memory_total, attribute) = unsafe {
        let total = device::total_mem(handle).map_or(0, |bytes| bytes as u64);
        (total, |which| device::get_attribute(handle, which).unwrap_or(0))
    };
    Properties {
        memory_free: memory_free(handle).unwrap_or(memory_total),
        name: name(ordinal),
        memory_total,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) as usize,
    }
}

/// Bytes no process has taken.
fn memory_free(handle: sys::CUdevice) -> Option<u64> {
    free_by_nvml(handle).or_else(|| free_in_context(handle))
}

/// NVML answers at once and needs no context. `None` where it is missing, or is of a driver before 510.
fn free_by_nvml(handle: sys::CUdevice) -> Option<u64> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    // The name that comes with the driver; the one without a version is for compilers.
    let nvml =
        NVML.get_or_init(|| Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().ok()).as_ref()?;
    let id = hex(&device::get_uuid(handle).ok()?.bytes.map(|byte| byte as u8));
    let id = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    // CUDA's number of a device is not NVML's: the user may have hidden some. A part of a GPU has a name of its own.
    let mut names = ["GPU", "MIG"].into_iter().map(|kind| format!("{kind}-{id}"));
    let device = names.find_map(|name| nvml.device_by_uuid(name).ok())?;
    device.memory_info().ok().map(|memory| memory.free)
}

/// The driver answers inside a context only, which takes a tenth of a second on an H200; this one is given back, so that a process
/// which merely asks holds no device memory.
fn free_in_context(handle: sys::CUdevice) -> Option<u64> {
    // SAFETY: `handle` is a device of the initialised driver; the context is popped before it is
    // released, and a context that others have retained outlives this.
    unsafe {
        let context = primary_ctx::retain(handle).ok()?;
        let free = sys::cuCtxPushCurrent_v2(context).result().ok().and_then(|()| {
            let free = mem_get_info().ok().map(|(free, _)| free as u64);
            let mut popped = std::ptr::null_mut();
            sys::cuCtxPopCurrent_v2(&mut popped).result().ok().and(free)
        });
        primary_ctx::release(handle).ok().and(free)
    }
}

/// The highest CUDA version that the driver supports, as (13, 0). The driver must be there.
pub fn supported() -> (i32, i32) {
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    (version / 1000, version % 1000 / 10)
}

/// The driver's own version, `580.159.04`; empty where the system does not report it.
pub fn version() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    text.split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .unwrap_or_default()
        .to_string()
}

/// The device's primary context: the one CubeCL uses too, so pointers and streams are shared.
pub struct Context(CUcontext);

// SAFETY: a context may be made current on any number of threads.
unsafe impl Send for Context {}
// SAFETY: as above; the handle itself is never changed.
unsafe impl Sync for Context {}

impl Context {
    /// # Errors
    /// The driver's, when the device cannot be opened: another process holds it exclusively, say.
    pub fn retain(ordinal: usize) -> Result<Self, String> {
        let handle = device::get(ordinal as i32).map_err(|e| e.to_string())?;
        // SAFETY: `handle` is a device of the initialised driver. The context is kept for the life
        // of the process, as CubeCL keeps it.
        unsafe { primary_ctx::retain(handle) }.map(Self).map_err(|e| e.to_string())
    }

    /// Makes the context current on this thread: CubeCL drives the device from a thread of its
    /// own, so ours has none.
    pub fn bind(&self) {
        // SAFETY: the context was retained and is never released.
        unsafe { ctx::set_current(self.0) }.expect("a retained context can be made current");
    }

    /// Free and total bytes, as the driver counts them for all processes together.
    pub fn memory(&self) -> (u64, u64) {
        self.bind();
        mem_get_info().map_or((0, 0), |(free, total)| (free as u64, total as u64))
    }
}
