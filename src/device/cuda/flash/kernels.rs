//! [`Kernels`]: the attention kernels of one type and head size, compiled by NVRTC once in a process.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::Mutex;

use burn::tensor::DType;
use cudarc::driver::result::{function, module};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute};
use cudarc::nvrtc::{result as nvrtc, sys};

use super::launch::Launch;
use crate::device::cuda::{Gpu, driver};

const SOURCE: &str = concat!(
    include_str!("tile.cuh"),
    include_str!("product.cuh"),
    include_str!("forward.cu"),
    include_str!("backward.cu"),
    include_str!("backward_keys.cu"),
);

/// Rows of q, or of k and v, that a block of threads has; as in `tile.cuh`.
pub const OWN: usize = 64;
pub const THREADS: usize = 128;

/// A kernel of the source.
#[derive(Clone, Copy)]
pub enum Part {
    Forward,
    Queries,
    Keys,
    Sum,
}

impl Part {
    const ALL: [(Self, &'static CStr); 4] = [
        (Self::Forward, c"attend"),
        (Self::Queries, c"attend_backward_queries"),
        (Self::Keys, c"attend_backward_keys"),
        (Self::Sum, c"attend_backward_sum"),
    ];
}

/// What the source is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Variant {
    bfloat16: bool,
    head_dim: usize,
    /// Hopper's tensor cores by warpgroup instructions, which no later generation has.
    wgmma: bool,
}

/// The kernels of one variant, loaded on a device.
pub struct Kernels {
    variant: Variant,
    functions: [CUfunction; 4],
}

type Loaded = Result<&'static Kernels, String>;

// SAFETY: a loaded kernel may be launched from any thread, and is never unloaded.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

/// Whether there are kernels for a type and head size.
///
/// # Errors
/// Why there are none.
pub fn fits(dtype: DType, head_dim: usize) -> Result<(), String> {
    if !matches!(dtype, DType::BF16 | DType::F16) {
        return Err("fused attention computes in bf16 and fp16".into());
    }
    if head_dim == 0 || !head_dim.is_multiple_of(16) || head_dim > 128 {
        return Err(format!("fused attention has heads of 16, 32, … 128 elements, not {head_dim}"));
    }
    Ok(())
}

impl Kernels {
    /// Compiled and loaded at the first call, which takes seconds.
    ///
    /// # Errors
    /// Why there are none; the answer stays the same in a process.
    pub fn of(gpu: &'static Gpu, dtype: DType, head_dim: usize) -> Result<&'static Self, String> {
        static LOADED: Mutex<BTreeMap<(usize, Variant), Loaded>> = Mutex::new(BTreeMap::new());
        fits(dtype, head_dim)?;
        let capability = driver::compute_capability(gpu.ordinal);
        let wgmma = capability == (9, 0) && head_dim.is_multiple_of(64);
        let variant = Variant { bfloat16: dtype == DType::BF16, head_dim, wgmma };
        let mut loaded = LOADED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let kernels = loaded.entry((gpu.ordinal, variant)).or_insert_with(|| {
            gpu.context.bind();
            variant.load(capability).map(|kernels| &*Box::leak(Box::new(kernels)))
        });
        kernels.clone()
    }

    /// The instruction that multiplies.
    pub fn instruction(&self) -> &'static str {
        if self.variant.wgmma { "wgmma" } else { "mma.sync" }
    }

    pub fn dtype(&self) -> DType {
        if self.variant.bfloat16 { DType::BF16 } else { DType::F16 }
    }

    pub fn head_dim(&self) -> usize {
        self.variant.head_dim
    }

    pub fn launch(&self, part: Part, [x, y]: [usize; 2]) -> Launch {
        Launch {
            function: self.functions[part as usize],
            grid: [x as u32, y as u32],
            threads: THREADS as u32,
            shared: self.variant.shared(part) as u32,
        }
    }
}

impl Variant {
    /// Rows of a tile of queries that registers allow.
    fn queries(self) -> usize {
        if self.wgmma || self.head_dim <= 64 { 64 } else { 32 }
    }

    /// Bytes of shared memory; as the kernels lay it out.
    fn shared(self, part: Part) -> usize {
        // Rows lie in panels of 64 elements.
        let tile = |rows: usize| rows * self.head_dim.div_ceil(64) * 128;
        match part {
            Part::Forward => 5 * tile(OWN),
            Part::Queries => 6 * tile(OWN),
            // lse, delta and start of the queries of two stages.
            Part::Keys => 2 * tile(OWN) + 4 * tile(self.queries()) + 2 * 3 * 4 * self.queries(),
            Part::Sum => 0,
        }
    }

    /// With the device's context current.
    fn load(self, (major, minor): (i32, i32)) -> Result<Kernels, String> {
        if major < 8 {
            return Err(format!("fused attention needs compute capability 8.0, not {major}.{minor}"));
        }
        let cubin = self.compile(&format!("sm_{major}{minor}{}", if self.wgmma { "a" } else { "" }))?;
        let failed =
            |e: cudarc::driver::DriverError| format!("the driver refuses the attention kernels: {e}");
        // SAFETY: the image is a whole cubin, and the driver copies it.
        let module = unsafe { module::load_data(cubin.as_ptr().cast()) }.map_err(failed)?;
        let mut functions = [std::ptr::null_mut(); 4];
        for (part, name) in Part::ALL {
            // SAFETY: the module was loaded and is never unloaded; the function is of it.
            functions[part as usize] = unsafe {
                let function = module::get_function(module, name.to_owned()).map_err(failed)?;
                let shared = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                function::set_function_attribute(function, shared, self.shared(part) as i32)
                    .map_err(failed)?;
                function
            };
        }
        Ok(Kernels { variant: self, functions })
    }

    fn compile(self, architecture: &str) -> Result<Vec<c_char>, String> {
        // SAFETY: only tries to load the library; cudarc panics at the first call without it.
        if !unsafe { sys::is_culib_present() } {
            return Err("NVRTC (libnvrtc.so) was not found".into());
        }
        let Self { bfloat16, head_dim, wgmma } = self;
        let options = [
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".into(),
            format!("-DBFLOAT16={}", u8::from(bfloat16)),
            format!("-DHEAD_DIM={head_dim}"),
            format!("-DWGMMA={}", u8::from(wgmma)),
            format!("-DQUERIES={}", self.queries()),
        ];
        let source = CString::new(SOURCE).expect("a source without a zero");
        let program = nvrtc::create_program(&source, Some(c"flash.cu")).map_err(|e| format!("NVRTC: {e}"))?;
        // SAFETY: the program was created above, is destroyed here alone, and both buffers have the size that NVRTC
        // asks for.
        unsafe {
            let compiled = nvrtc::compile_program(program, &options).and_then(|()| {
                let mut bytes = 0;
                sys::nvrtcGetCUBINSize(program, &mut bytes).result()?;
                let mut cubin = vec![0; bytes];
                sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr()).result().map(|()| cubin)
            });
            let compiled = compiled.map_err(|e| {
                let log = nvrtc::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
                let log = String::from_utf8_lossy(&log);
                format!("NVRTC does not compile the attention kernels for {architecture}: {e} {}", log.trim())
            });
            let _ = nvrtc::destroy_program(program);
            compiled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_head_sizes() {
        for head_dim in [16, 64, 80, 128] {
            assert_eq!(fits(DType::BF16, head_dim), Ok(()));
        }
        assert!(fits(DType::F32, 64).unwrap_err().contains("bf16 and fp16"));
        for head_dim in [0, 20, 144] {
            assert!(fits(DType::F16, head_dim).unwrap_err().contains(&format!("not {head_dim}")));
        }
    }

    /// The least a block may have on devices from 8.6 on is 99 KiB.
    #[test]
    fn tiles_fit_into_shared_memory() {
        for head_dim in (16..=128).step_by(16) {
            let variant = Variant { bfloat16: true, head_dim, wgmma: false };
            for (part, _) in Part::ALL {
                assert!(variant.shared(part) <= 99 << 10);
            }
        }
    }
}
