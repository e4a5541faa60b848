//! Named ranges in the timelines of NVIDIA's profilers (NVTX).
//!
//! They need a profiler, which sets `NVTX_INJECTION64_PATH`, and `libnvToolsExt.so.1`, which comes with CUDA up
//! to 12: later versions have NVTX in C headers alone. Without both there are no ranges, and measuring costs
//! nothing more.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use cubecl::client::Client;
use libloading::Library;

use super::Gpu;

struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

/// The library; it is searched for once.
fn nvtx() -> Option<&'static Nvtx> {
    static NVTX: OnceLock<Option<Nvtx>> = OnceLock::new();
    let load = || {
        std::env::var_os("NVTX_INJECTION64_PATH")?;
        // SAFETY: loading NVTX runs no more than its own set-up. The functions have these signatures
        // in every version, and the library is never unloaded.
        unsafe {
            let library = Library::new("libnvToolsExt.so.1").ok()?;
            let nvtx = Nvtx {
                push: *library.get(c"nvtxRangePushA").ok()?,
                pop: *library.get(c"nvtxRangePop").ok()?,
            };
            std::mem::forget(library);
            Some(nvtx)
        }
    };
    NVTX.get_or_init(load).as_ref()
}

/// Names what this thread issues until it is dropped. Ranges nest.
pub struct Range {
    nvtx: &'static Nvtx,
    client: Client,
}

impl Range {
    /// `None` without the library. With it, a range costs two round trips to CubeCL's thread: that
    /// is the one that launches the kernels, so a range on it is shown over them on the device too.
    pub fn enter(gpu: &Gpu, name: &'static CStr) -> Option<Self> {
        let (nvtx, client) = (nvtx()?, gpu.client());
        // SAFETY: `name` ends with a zero and lives as long as the process.
        let entered = client.exclusive(move || unsafe { (nvtx.push)(name.as_ptr()) });
        entered.is_ok().then(|| Self { nvtx, client })
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let nvtx = self.nvtx;
        // SAFETY: ends what `enter` began on the same thread. A range that does not end shows as such.
        let _ = self.client.exclusive(move || unsafe { (nvtx.pop)() });
    }
}
