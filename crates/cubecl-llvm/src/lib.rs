//! The names of `cubecl-llvm` that `cubecl-cuda` refers to, without LLVM. The README says why.

use core::ffi::c_char;
use core::fmt;

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_server::compiler::{CompilationError, Compiler};
use cubecl_server::kernel::BufferIOAttr;

pub mod nvptx {
    pub mod ptx_version {
        /// No PTX version is ever known: there is no PTX generator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct PtxVersion(());

        impl PtxVersion {
            pub fn for_driver(_: i32) -> Option<Self> {
                None
            }
        }

        impl core::fmt::Display for PtxVersion {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("none")
            }
        }
    }
}

pub mod shared {
    pub mod lowered_features {
        pub enum GpuTarget {
            Nvptx,
        }

        /// Nothing is lowered, so nothing is restricted.
        pub fn restrict_features<T>(_: &mut T, _: GpuTarget) {}
    }
}

#[derive(Clone, Debug)]
pub enum LlvmTarget {
    Nvptx,
}

/// A compiler that compiles nothing.
#[derive(Clone, Debug)]
pub struct PlironCompiler {
    pub target: LlvmTarget,
}

#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    pub arch: Option<String>,
    pub sm_arch: Option<SmArch>,
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    pub grid_constants: bool,
    pub reserved: (),
}

#[derive(Clone, Debug)]
pub struct NvptxModule {
    pub shared_memory_size: usize,
    pub ir: String,
    pub io: Vec<BufferIOAttr>,
    pub ptx: Vec<c_char>,
}

pub enum PlironArtifact {
    NvptxCode(NvptxModule),
    Other,
}

impl fmt::Display for PlironArtifact {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(
        &mut self,
        _: KernelDefinition,
        _: &PlironOptions,
    ) -> Result<PlironArtifact, CompilationError> {
        Err(CompilationError::Generic {
            reason: "this build has no LLVM code generator: enable cubecl's feature cuda-cpp".into(),
            backtrace: cubecl_environment::backtrace::BackTrace::capture(),
        })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}
