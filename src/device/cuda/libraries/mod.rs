//! The libraries that computing on a GPU needs: which are here, and whether a GPU can be used with them.
//!
//! They are loaded by name when they are first called. [`arrange`] makes those of Python's and conda's packages known by
//! these names.

mod arrange;
mod links;
mod nvrtc;
mod places;
mod probe;
mod report;
mod trial;

use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::{cublaslt, cupti, driver::sys as cuda, nccl, nvrtc as compiler};
use libloading::Library as Loaded;

use super::driver;
pub use arrange::arrange;
use nvrtc::Nvrtc;
pub use report::table;
pub use trial::{compile_and_load, warm_compiler};

/// A library that is loaded when it is first called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    Driver,
    Nvrtc,
    BlasLt,
    Cupti,
    Nccl,
}

impl Library {
    /// Those that come without the driver.
    const OPTIONAL: [Self; 4] = [Self::Nvrtc, Self::BlasLt, Self::Cupti, Self::Nccl];

    /// `nvrtc` of `libnvrtc.so.12`
    fn stem(self) -> &'static str {
        match self {
            Self::Driver => "cuda",
            Self::Nvrtc => "nvrtc",
            Self::BlasLt => "cublasLt",
            Self::Cupti => "cupti",
            Self::Nccl => "nccl",
        }
    }

    /// How the files begin that it loads from its own folder, and its own.
    fn family(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &["libcuda.so"],
            Self::Nvrtc => &["libnvrtc"],
            Self::BlasLt => &["libcublas"],
            Self::Cupti => &["libcupti", "libnvperf", "libcheckpoint", "libpcsampling"],
            Self::Nccl => &["libnccl"],
        }
    }

    /// What the loader finds under the names that cudarc asks for.
    fn loaded(self) -> Option<&'static Loaded> {
        // SAFETY: only loads the library, which stays loaded; cudarc panics where it is asked for one that is not there.
        unsafe {
            match self {
                Self::Driver => cuda::is_culib_present().then(|| cuda::culib()),
                Self::Nvrtc => compiler::sys::is_culib_present().then(|| compiler::sys::culib()),
                Self::BlasLt => cublaslt::sys::is_culib_present().then(|| cublaslt::sys::culib()),
                Self::Cupti => cupti::sys::is_culib_present().then(|| cupti::sys::culib()),
                Self::Nccl => nccl::sys::is_culib_present().then(|| nccl::sys::culib()),
            }
        }
    }
}

/// Why a GPU cannot be used, and what the user does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub what: String,
    pub remedy: String,
}

impl Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// The least CUDA version that the driver must support: 12.0, driver 525.
const LEAST: (i32, i32) = (12, 0);

/// # Errors
/// Why the device with this number, which the driver has, cannot be used: its driver is too old, or a library without which
/// nothing can be computed is missing or not one for it.
pub fn require(ordinal: usize) -> Result<(), Lack> {
    static COMPILER: OnceLock<Result<Nvrtc, Lack>> = OnceLock::new();
    let driver = driver::supported();
    let compiler = COMPILER.get_or_init(|| {
        require_driver(driver, &driver::version())?;
        let capability = driver::architecture(ordinal);
        let compiler = Library::Nvrtc.loaded().and_then(Nvrtc::in_library);
        let compiler = compiler.ok_or_else(|| nvrtc::absent(driver, capability))?;
        headers().map_or_else(|| Err(nvrtc::without_headers(driver, capability)), |_| Ok(compiler))
    });
    compiler.as_ref().map_err(Lack::clone)?.require(driver, driver::architecture(ordinal))
}

fn require_driver((major, minor): (i32, i32), version: &str) -> Result<(), Lack> {
    if (major, minor) >= LEAST {
        return Ok(());
    }
    let name = if version.is_empty() { String::new() } else { format!(" {version}") };
    Err(Lack {
        what: format!(
            "the NVIDIA driver{name} supports CUDA {major}.{minor}, and the runner needs CUDA 12.0"
        ),
        remedy: "install driver 525 or a later one".into(),
    })
}

/// The headers that CubeCL's kernels include whatever they compute.
const HEADERS: [&str; 2] = ["cuda_fp16.h", "cuda_bf16.h"];

/// The folder of CUDA's headers, as CubeCL finds it; `None` where they do not lie there.
fn headers() -> Option<PathBuf> {
    let folder = cubecl_cuda::install::cuda_path()?.join("include");
    has_headers(&folder).then_some(folder)
}

fn has_headers(folder: &Path) -> bool {
    HEADERS.iter().all(|name| folder.join(name).is_file())
}

/// The version of CUDA whose headers lie in this folder.
fn headers_version(folder: &Path) -> Option<(i32, i32)> {
    let defined = |(file, name): (&str, &str)| {
        let text = fs::read(folder.join(file)).ok()?;
        let text = String::from_utf8_lossy(&text);
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix("#define ")?.trim().strip_prefix(name));
        let version: i32 = line?.trim().parse().ok()?;
        Some((version / 1000, version % 1000 / 10))
    };
    [("cuda_runtime_api.h", "CUDART_VERSION"), ("cuda.h", "CUDA_VERSION")].into_iter().find_map(defined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_below_525_is_refused_by_name() {
        assert_eq!(require_driver((12, 0), "525.60.13"), Ok(()));
        assert_eq!(require_driver((13, 5), ""), Ok(()));
        let lack = require_driver((11, 8), "520.61.05").unwrap_err().to_string();
        assert!(
            lack.contains("driver 520.61.05 supports CUDA 11.8") && lack.contains("install driver 525"),
            "{lack}"
        );
        let lack = require_driver((11, 4), "").unwrap_err().to_string();
        assert!(lack.starts_with("the NVIDIA driver supports CUDA 11.4"), "{lack}");
    }

    #[test]
    fn headers_say_their_version() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!((has_headers(folder.path()), headers_version(folder.path())), (false, None));
        write("cuda_fp16.h", "");
        assert!(!has_headers(folder.path()), "half of them");
        write("cuda_bf16.h", "");
        assert!(has_headers(folder.path()));
        write("cuda.h", "/**/\n#define CUDA_VERSION 13000\n");
        assert_eq!(headers_version(folder.path()), Some((13, 0)));
        write("cuda_runtime_api.h", "#if 0\n#define CUDART_VERSION  12090\n");
        assert_eq!(headers_version(folder.path()), Some((12, 9)));
    }
}
