//! [`compile_and_load`]: a kernel that does nothing, on the way that CubeCL's kernels go.

use std::ffi::CString;
use std::fs;
use std::thread;

use cudarc::driver::result::module;
use cudarc::driver::sys::CUresult;

use super::super::compiled::Compiled;
use super::super::program::{Image, Source, compile};
use super::{HEADERS, Lack, Library, Nvrtc, headers, nvrtc};
use crate::device::cuda::driver;

const KERNEL: &str =
    "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nextern \"C\" __global__ void trial() {}\n";

/// Does `other` while NVRTC compiles an empty program: its first takes 65 ms longer than those behind it.
pub fn warm_compiler<T>(other: impl FnOnce() -> T) -> T {
    const EMPTY: &str = "extern \"C\" __global__ void empty() {}\n";
    thread::scope(|scope| {
        // Where it fails, the kernels behind it say why.
        scope.spawn(|| compile("an empty program", EMPTY, &[], Image::Ptx));
        other()
    })
}

/// Compiles a kernel for the device and loads it, unless a process did before with the same driver, compiler and headers: NVRTC
/// takes 33 ms for it. The device's context is current, and [`require`](super::require) has passed.
///
/// # Errors
/// What the compiler or the driver says, which CubeCL would say for every kernel.
pub fn compile_and_load(ordinal: usize) -> Result<(), Lack> {
    let capability = driver::architecture(ordinal);
    let generation = if capability.major >= 9 { "a" } else { "" };
    let include = headers().unwrap_or_default();
    let options = [
        format!("--gpu-architecture=sm_{}{generation}", capability.number()),
        format!("--include-path={}", include.display()),
        format!("--include-path={}", include.join("cccl").display()),
    ];
    // Headers of another version under the same path are others.
    let written = HEADERS.map(|header| fs::metadata(include.join(header)).and_then(|of| of.modified()).ok());
    let supported = driver::supported();
    let place = format!("{supported:?} {} {written:?}", driver::version());
    let source = Source { name: "trial", text: KERNEL, macros: Vec::new(), generation_only: false };
    let passed = Compiled::new(&source, &[options.as_slice(), &[place]].concat());
    if passed.get().is_some() {
        return Ok(());
    }
    let ptx = load(&options).map_err(|what| Lack { what, remedy: nvrtc::install(supported, capability) })?;
    passed.put(ptx.as_bytes());
    Ok(())
}

/// The kernel as PTX, which the driver has loaded.
///
/// # Errors
/// What the compiler or the driver says.
fn load(options: &[String]) -> Result<CString, String> {
    let ptx = compile("a trial", KERNEL, options, Image::Ptx)?;
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
        let (own, part) = driver::supported();
        format!("the driver of CUDA {own}.{part} does not load what NVRTC {major}.{minor} compiles ({why})")
    })?;
    Ok(ptx)
}
