//! [`Nvrtc`]: whether a driver takes what a version of NVRTC compiles, and what to install where it does not.
//!
//! CubeCL loads PTX. A driver takes PTX of its own CUDA version and of earlier ones; that a cubin of a later minor version
//! would also run there ("minor version compatibility") does not help. So NVRTC must not be newer than the driver.

use std::ffi::c_int;

use libloading::Library as Loaded;

use super::Lack;
use crate::device::Capability;

/// NVRTC's version and the architectures that it compiles for: 75 for sm_75.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvrtc {
    pub version: (i32, i32),
    pub architectures: Vec<c_int>,
}

/// The first capability that CUDA 13 still compiles for: Turing.
const TURING: Capability = Capability::new(7, 5);

impl Nvrtc {
    /// What a loaded library says of itself.
    pub fn in_library(library: &Loaded) -> Option<Self> {
        type Two = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        type One = unsafe extern "C" fn(*mut c_int) -> c_int;
        let (mut version, mut count) = ((0, 0), 0);
        // SAFETY: the functions have these signatures in every version from 11.2 on, 0 is success, and the array has as
        // many numbers as the library says that it writes.
        unsafe {
            let known = library.get::<Two>(c"nvrtcVersion").ok()?(&mut version.0, &mut version.1) == 0;
            let counted = library.get::<One>(c"nvrtcGetNumSupportedArchs").ok()?(&mut count) == 0;
            let mut architectures = vec![0; usize::try_from(count).ok().filter(|_| known && counted)?];
            let listed = library.get::<One>(c"nvrtcGetSupportedArchs").ok()?(architectures.as_mut_ptr()) == 0;
            listed.then_some(Self { version, architectures })
        }
    }

    /// Whether a driver that supports this version of CUDA takes its PTX.
    pub fn fits(&self, driver: (i32, i32)) -> bool {
        ptx_of(self.version) <= ptx_of(driver)
    }

    /// Whether it compiles for devices of this compute capability.
    pub fn knows(&self, capability: Capability) -> bool {
        self.architectures.contains(&(capability.number() as c_int))
    }

    /// # Errors
    /// Why kernels that it compiles do not run on a device of this capability with this driver.
    pub fn require(&self, driver: (i32, i32), capability: Capability) -> Result<(), Lack> {
        let (major, minor) = self.version;
        let what = match (self.fits(driver), self.knows(capability)) {
            (true, true) => return Ok(()),
            (false, _) => format!(
                "NVRTC {major}.{minor} is newer than the driver, which supports CUDA {}.{} and does not load what later \
                 versions compile",
                driver.0, driver.1
            ),
            (true, false) => format!(
                "NVRTC {major}.{minor} does not compile for this device's compute capability {capability}"
            ),
        };
        Err(Lack { what, remedy: install(driver, capability) })
    }
}

/// The CUDA version whose PTX a version of CUDA compiles and takes: 12.5 and 12.6 have the same, PTX 8.5.
fn ptx_of(cuda: (i32, i32)) -> (i32, i32) {
    if cuda == (12, 6) { (12, 5) } else { cuda }
}

pub fn absent(driver: (i32, i32), capability: Capability) -> Lack {
    Lack {
        what: "NVRTC (libnvrtc.so), which compiles the kernels, was not found".into(),
        remedy: install(driver, capability),
    }
}

pub fn without_headers(driver: (i32, i32), capability: Capability) -> Lack {
    let what =
        format!("CUDA's headers ({}), which kernels include, were not found", super::HEADERS.join(", "));
    Lack { what, remedy: install(driver, capability) }
}

/// What to install for this driver and a device of this capability.
pub fn install((major, minor): (i32, i32), capability: Capability) -> String {
    let (last, packages) = match major {
        // CUDA 12 ends with 12.9; it is the last one for devices before Turing.
        _ if major == 12 || capability < TURING => {
            let end = if major == 12 { minor + 1 } else { 10 };
            let packages = ["nvrtc", "runtime"].map(|part| format!("\"nvidia-cuda-{part}-cu12<12.{end}\""));
            (format!("12.{}", end - 1), packages)
        }
        _ => {
            let end = minor + 1;
            let packages =
                ["nvrtc", "runtime"].map(|part| format!("\"nvidia-cuda-{part}>={major},<{major}.{end}\""));
            (format!("{major}.{minor}"), packages)
        }
    };
    format!(
        "run `pip install {}` in the active Python environment, or install the CUDA toolkit {last} and set CUDA_PATH to \
         it; `runner devices` lists what is found",
        packages.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nvrtc(version: (i32, i32)) -> Nvrtc {
        let architectures = if version.0 == 12 { vec![50, 70, 75, 80, 90] } else { vec![75, 80, 90, 120] };
        Nvrtc { version, architectures }
    }

    #[test]
    fn a_driver_takes_ptx_of_its_own_version_and_earlier_ones() {
        for (version, driver, fits) in [
            ((12, 0), (12, 0), true),
            ((12, 4), (12, 4), true),
            ((12, 0), (13, 0), true),
            ((12, 5), (12, 4), false),
            ((12, 9), (12, 8), false),
            ((13, 0), (12, 9), false),
            ((13, 1), (13, 0), false),
            // Both compile to PTX 8.5.
            ((12, 6), (12, 5), true),
            ((12, 6), (12, 4), false),
            ((12, 8), (12, 6), false),
        ] {
            assert_eq!(nvrtc(version).fits(driver), fits, "NVRTC {version:?} with a driver of {driver:?}");
        }
    }

    #[test]
    fn a_refusal_says_both_versions_and_what_to_install() {
        let lack = nvrtc((13, 0)).require((12, 4), Capability::new(8, 6)).unwrap_err();
        assert!(lack.what.contains("NVRTC 13.0 is newer") && lack.what.contains("CUDA 12.4"), "{lack}");
        assert!(lack.remedy.contains("\"nvidia-cuda-nvrtc-cu12<12.5\""), "{lack}");
        assert!(lack.remedy.contains("\"nvidia-cuda-runtime-cu12<12.5\""), "{lack}");
        let lack = nvrtc((13, 2)).require((13, 0), Capability::new(9, 0)).unwrap_err();
        assert!(lack.remedy.contains("\"nvidia-cuda-nvrtc>=13,<13.1\""), "{lack}");
        // Volta's last driver is one of CUDA 13, whose NVRTC has left it behind.
        let lack = nvrtc((13, 0)).require((13, 0), Capability::new(7, 0)).unwrap_err();
        assert!(lack.what.contains("compute capability 7.0"), "{lack}");
        assert!(lack.remedy.contains("\"nvidia-cuda-nvrtc-cu12<12.10\""), "{lack}");
        assert_eq!(nvrtc((12, 4)).require((13, 0), Capability::new(7, 0)), Ok(()));
    }
}
