//! [`compile_and_load`]: a kernel that does nothing, on the way that CubeCL's kernels go.

use std::ffi::CString;

use cudarc::driver::result::module;
use cudarc::driver::sys::CUresult;

use super::super::program::{Image, compile};
use super::{Lack, Library, Nvrtc, headers, nvrtc};
use crate::device::cuda::driver;

const KERNEL: &str =
    "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nextern \"C\" __global__ void trial() {}\n";

/// Compiles a kernel for the device and loads it. The device's context is current, and
/// [`require`](super::require) has passed.
///
/// # Errors
/// What the compiler or the driver says, which CubeCL would say for every kernel.
pub fn compile_and_load(ordinal: usize) -> Result<(), Lack> {
    let (supported, capability) = (driver::supported(), driver::architecture(ordinal));
    let generation = if capability.major >= 9 { "a" } else { "" };
    let folder = headers().unwrap_or_default();
    let options = [
        format!("--gpu-architecture=sm_{}{generation}", capability.number()),
        format!("--include-path={}", folder.display()),
        format!("--include-path={}", folder.join("cccl").display()),
    ];
    let remedy = || nvrtc::install(supported, capability);
    let ptx =
        compile("a trial", KERNEL, &options, Image::Ptx).map_err(|what| Lack { what, remedy: remedy() })?;
    let ptx = CString::new(ptx.split(|byte| *byte == 0).next().unwrap_or_default()).expect("cut at the zero");
    // SAFETY: PTX ends with a zero; the driver copies it. Nobody uses the module.
    let loaded = unsafe { module::load_data(ptx.as_ptr().cast()).and_then(|module| module::unload(module)) };
    loaded.map_err(|error| {
        let version = Library::Nvrtc.loaded().and_then(Nvrtc::in_library).map(|nvrtc| nvrtc.version);
        let (major, minor) = version.unwrap_or_default();
        let why = match error.0 {
            CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => "it is older than NVRTC".to_string(),
            _ => error.to_string(),
        };
        let (own, part) = supported;
        let what = format!(
            "the driver of CUDA {own}.{part} does not load what NVRTC {major}.{minor} compiles ({why})"
        );
        Lack { what, remedy: remedy() }
    })
}
