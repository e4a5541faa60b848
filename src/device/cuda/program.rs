//! CUDA C++ that NVRTC compiles for a device when it is first needed: [`Programs`].

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, PoisonError};

use burn::tensor::DType;
use cudarc::driver::result::function::set_function_attribute;
use cudarc::driver::result::{launch_kernel, module};
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
use cudarc::driver::sys::{CUfunction, CUstream};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

/// A kernel of a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub text: &'static str,
    pub kernel: &'static str,
    /// `NAME=VALUE` for each macro.
    pub macros: Vec<String>,
    /// Bytes of shared memory that a launch gives each block.
    pub shared: u32,
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

/// A kernel on a device.
#[derive(Clone, Copy)]
pub struct Function {
    function: CUfunction,
    shared: u32,
}

// SAFETY: a function of a loaded module may be launched by any thread, and modules are never unloaded.
unsafe impl Send for Function {}

/// The kernels that a device has loaded.
#[derive(Default)]
pub struct Programs(Mutex<HashMap<Source, Function>>);

impl Programs {
    /// Compiles and loads the kernel on first use. Needs the device's context to be current.
    ///
    /// # Errors
    /// What the compiler or the driver says.
    pub fn function(&self, source: &Source, (major, minor): (i32, i32)) -> Result<Function, String> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = loaded.get(source) {
            return Ok(*function);
        }
        let failed = |e: &dyn std::fmt::Debug| format!("{} cannot be compiled: {e:?}", source.kernel);
        // Without the second option NVRTC before 13.5 takes a lambda for a function of the host.
        let mut options =
            vec![format!("--gpu-architecture=compute_{major}{minor}"), "-default-device".into()];
        options.extend(source.macros.iter().map(|name| format!("-D{name}")));
        let options = CompileOptions { options, ..CompileOptions::default() };
        let ptx = compile_ptx_with_opts(source.text, options).map_err(|e| failed(&e))?;
        let image = CString::new(ptx.to_src()).map_err(|e| failed(&e))?;
        let name = CString::new(source.kernel).map_err(|e| failed(&e))?;
        // SAFETY: the image is PTX that ends with a zero; the module is never unloaded.
        let function = unsafe {
            let module = module::load_data(image.as_ptr().cast()).map_err(|e| failed(&e))?;
            let function = module::get_function(module, name).map_err(|e| failed(&e))?;
            // Beyond 48 KB a kernel must ask.
            set_function_attribute(function, SHARED, source.shared as i32).map_err(|e| failed(&e))?;
            Function { function, shared: source.shared }
        };
        loaded.insert(source.clone(), function);
        Ok(function)
    }
}

impl Function {
    /// Launches blocks of so many threads on `stream`. Needs the device's context to be current.
    ///
    /// # Safety
    /// `parameters` is the kernel's only parameter as C++ lays it out, and the memory that it points to is allocated
    /// until the stream has run the kernel.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn launch<P>(
        self,
        [blocks, threads]: [u32; 2],
        parameters: &mut P,
        stream: CUstream,
    ) -> Result<(), String> {
        let mut pointers = [(&raw mut *parameters).cast::<c_void>()];
        // SAFETY: as the caller says; the driver copies the parameter before it returns.
        unsafe {
            launch_kernel(self.function, (blocks, 1, 1), (threads, 1, 1), self.shared, stream, &mut pointers)
        }
        .map_err(|e| format!("a kernel cannot be launched: {e}"))
    }
}
