//! CUDA C++ that NVRTC compiles for a device when it is first needed: [`Source`] and its [`Function`]s.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use burn::tensor::DType;
use cudarc::driver::result::function::set_function_attribute;
use cudarc::driver::result::{launch_kernel, module};
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};
use cudarc::nvrtc::{result as nvrtc, sys};

use super::compiled::Compiled;
use super::{Gpu, capability, driver};
use crate::common::locked;
use crate::device::Capability;

/// What NVRTC compiles.
#[derive(Clone, Debug)]
pub struct Source {
    /// No other source has it.
    pub name: &'static str,
    pub text: &'static str,
    /// `NAME=VALUE` for each macro.
    pub macros: Vec<String>,
    /// Whether it has instructions of this generation that later ones lack.
    pub generation_only: bool,
}

/// The name of a type in numbers.cuh.
///
/// # Panics
/// For any type but f32, bf16 and f16.
pub fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "FLOAT",
        DType::BF16 => "BFLOAT16",
        DType::F16 => "HALF",
        other => panic!("the kernels compute on f32, bf16 and f16, not {other:?}"),
    }
}

/// The programs that a device has loaded, or why it has not, by the names and macros of their sources.
pub type Programs = Mutex<HashMap<(&'static str, Vec<String>), Result<Program, String>>>;

/// What a source is compiled to: kernels, each with the bytes of shared memory that a launch gives a block at most.
#[cfg(test)]
pub struct Variant {
    pub source: Source,
    pub kernels: Vec<(&'static str, usize)>,
}

#[cfg(test)]
impl Variant {
    /// Of kernels that need no shared memory beside their own.
    pub fn plain(source: Source, kernels: impl IntoIterator<Item = &'static str>) -> Self {
        Self { source, kernels: kernels.into_iter().map(|name| (name, 0)).collect() }
    }
}

/// The types that kernels compute on in 16 bits.
#[cfg(test)]
pub const NARROW: [DType; 2] = [DType::BF16, DType::F16];

/// A loaded source.
pub struct Program {
    module: CUmodule,
    /// The functions by name, each with the most shared memory that a launch may ask for so far.
    functions: HashMap<&'static str, Function>,
}

// SAFETY: modules may be used by any thread, and are never unloaded.
unsafe impl Send for Program {}

/// A kernel on a device, with the bytes of shared memory that a launch gives each block.
#[derive(Clone, Copy)]
pub struct Function {
    function: CUfunction,
    shared: u32,
}

// SAFETY: a function of a loaded module may be launched by any thread, and modules are never unloaded.
unsafe impl Send for Function {}

impl Gpu {
    /// Kernels of a source, by name and bytes of shared memory for each block. The source is loaded at the first call, and
    /// compiled where no process has before, which may take seconds.
    ///
    /// # Errors
    /// What the compiler or the driver says, which stays the same in a process.
    pub fn functions<const N: usize>(
        &self,
        source: &Source,
        kernels: [(&'static str, usize); N],
    ) -> Result<[Function; N], String> {
        self.context.bind();
        let mut programs = locked(&self.programs);
        let program = programs
            .entry((source.name, source.macros.clone()))
            .or_insert_with(|| source.load(driver::architecture(self.ordinal), capability(self.ordinal)));
        let program = program.as_mut().map_err(|reason| reason.clone())?;
        let functions: Result<Vec<_>, _> =
            kernels.into_iter().map(|(kernel, shared)| program.function(kernel, shared)).collect();
        Ok(functions?.try_into().unwrap_or_else(|_| unreachable!("one for each kernel")))
    }
}

impl Source {
    /// What NVRTC is told: the architecture of the device, and in `CAPABILITY` the compute capability whose ways the source
    /// takes, 750 for 7.5.
    pub fn options(&self, architecture: Capability, capability: Capability) -> Vec<String> {
        let own = if self.generation_only { "a" } else { "" };
        // Without the third option NVRTC before 13.5 takes a lambda for a function of the host.
        let options = [
            format!("--gpu-architecture=sm_{}{own}", architecture.number()),
            "--std=c++17".into(),
            "-default-device".into(),
            format!("-DCAPABILITY={}", 10 * capability.number()),
        ];
        options.into_iter().chain(self.macros.iter().map(|name| format!("-D{name}"))).collect()
    }

    fn load(&self, architecture: Capability, capability: Capability) -> Result<Program, String> {
        // SAFETY: only tries to load the library; cudarc panics at the first call without it.
        if !unsafe { sys::is_culib_present() } {
            return Err("NVRTC (libnvrtc.so) was not found".into());
        }
        let options = self.options(architecture, capability);
        // SAFETY: the image is a whole cubin, which the driver copies.
        let of = |cubin: &[u8]| unsafe { module::load_data(cubin.as_ptr().cast()) };
        let kept = Compiled::new(self, &options);
        let module = match kept.get().and_then(|cubin| of(&cubin).ok()) {
            Some(module) => module,
            None => {
                let cubin = compile(self.name, self.text, &options, Image::Cubin)?;
                let module = of(&cubin).map_err(|e| format!("the driver refuses {}: {e}", self.name))?;
                kept.put(&cubin);
                module
            }
        };
        Ok(Program { module, functions: HashMap::new() })
    }
}

/// What NVRTC makes of a source.
#[derive(Clone, Copy)]
pub(super) enum Image {
    /// For one architecture, which the driver loads as it is.
    Cubin,
    /// Which the driver compiles once more.
    Ptx,
}

/// Compiles a text, which must have no zero in it. NVRTC must be there.
///
/// # Errors
/// What the compiler says.
pub(super) fn compile(name: &str, text: &str, options: &[String], image: Image) -> Result<Vec<u8>, String> {
    let [text, c_name] = [text, name].map(|part| CString::new(part).expect("a text without a zero"));
    let program = nvrtc::create_program(&text, Some(&c_name)).map_err(|e| format!("NVRTC: {e}"))?;
    // SAFETY: the program was created above, is destroyed here alone, and the buffer has the size that NVRTC asks
    // for.
    unsafe {
        let compiled = nvrtc::compile_program(program, options).and_then(|()| {
            let mut size = 0;
            let asked = match image {
                Image::Cubin => sys::nvrtcGetCUBINSize(program, &mut size),
                Image::Ptx => sys::nvrtcGetPTXSize(program, &mut size),
            };
            asked.result()?;
            let mut bytes = vec![0u8; size];
            let to = bytes.as_mut_ptr().cast();
            let written = match image {
                Image::Cubin => sys::nvrtcGetCUBIN(program, to),
                Image::Ptx => sys::nvrtcGetPTX(program, to),
            };
            written.result().map(|()| bytes)
        });
        let compiled = compiled.map_err(|e| {
            let log = nvrtc::get_program_log(program).unwrap_or_default();
            let log: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
            let log = String::from_utf8_lossy(&log);
            format!("NVRTC does not compile {name} by {options:?}: {e} {}", log.trim())
        });
        let _ = nvrtc::destroy_program(program);
        compiled
    }
}

impl Program {
    fn function(&mut self, kernel: &'static str, shared: usize) -> Result<Function, String> {
        let failed = |e: cudarc::driver::DriverError| format!("the driver refuses the kernel {kernel}: {e}");
        let allowed = match self.functions.entry(kernel) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let name = CString::new(kernel).expect("a name without a zero");
                // SAFETY: the module was loaded and is never unloaded.
                let function = unsafe { module::get_function(self.module, name) }.map_err(failed)?;
                place.insert(Function { function, shared: 0 })
            }
        };
        let shared = shared as u32;
        // Beyond 48 KB a kernel must ask. The limit is the function's: it only grows, so that what was returned for more
        // can still be launched.
        if shared > allowed.shared {
            // SAFETY: the function is of a module that is never unloaded.
            unsafe { set_function_attribute(allowed.function, SHARED, shared as i32) }.map_err(failed)?;
            allowed.shared = shared;
        }
        Ok(Function { shared, ..*allowed })
    }
}

impl Function {
    /// Launches `grid` blocks of so many threads on `stream`. Needs the device's context to be current.
    ///
    /// # Safety
    /// `parameters` is the kernel's only parameter as C++ lays it out, and the memory that it points to is allocated
    /// until the stream has run the kernel.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn launch<P: ?Sized>(
        self,
        [x, y]: [u32; 2],
        threads: u32,
        parameters: &mut P,
        stream: CUstream,
    ) -> Result<(), String> {
        let mut pointers = [(&raw mut *parameters).cast::<c_void>()];
        let Self { function, shared } = self;
        // SAFETY: as the caller says; the driver copies the parameter before it returns.
        unsafe { launch_kernel(function, (x, y, 1), (threads, 1, 1), shared, stream, &mut pointers) }
            .map_err(|e| format!("a kernel cannot be launched: {e}"))
    }
}
