//! Matrix products through cuBLASLt on raw device pointers: [`Blas`].

mod descriptors;
mod problem;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cudarc::cublaslt::result::{self as lt, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;

use descriptors::{Algorithm, Descriptors};
pub use problem::{Addresses, Epilogue, Fp32Math, Layout, Problem};

/// Scratch memory cuBLASLt may use: 32 MiB, what NVIDIA recommends for Hopper.
pub const WORKSPACE: usize = 32 << 20;

/// A cuBLASLt handle and the algorithms chosen so far.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
    /// An error is kept too: cuBLASLt is not asked again for what it has refused.
    plans: Mutex<HashMap<Problem, Result<Arc<Plan>, CublasError>>>,
}

/// Descriptors and algorithm of one problem.
struct Plan {
    descriptors: Descriptors,
    algorithm: Algorithm,
}

// SAFETY: a cuBLASLt handle may be used by several threads at once.
unsafe impl Send for Blas {}
// SAFETY: as above; the plans are behind a mutex.
unsafe impl Sync for Blas {}

impl Blas {
    /// Needs the device's context to be current.
    ///
    /// # Errors
    /// Why cuBLASLt cannot be used.
    pub fn new() -> Result<Self, String> {
        // SAFETY: only tries to load the library; cudarc panics at the first call without it.
        if !unsafe { sys::is_culib_present() } {
            return Err("the cuBLASLt library (libcublasLt.so) was not found".into());
        }
        let handle = lt::create_handle().map_err(|e| format!("cuBLASLt does not start: {e}"))?;
        Ok(Self { handle, plans: Mutex::default() })
    }

    /// cuBLASLt's version, 130100 for 13.1.0.
    pub fn version() -> usize {
        // SAFETY: reads a constant of the library.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// Enqueues the product on `stream`.
    ///
    /// # Safety
    /// The addresses must hold matrices of the problem's layouts, and its epilogue's vector, and stay
    /// allocated until the stream has run the product.
    ///
    /// # Errors
    /// When cuBLASLt has no algorithm for the problem (some types have no epilogues), or the launch
    /// fails.
    pub unsafe fn matmul(&self, problem: &Problem, at: &Addresses, stream: CUstream) -> Result<(), String> {
        let plan =
            self.plan(problem, at).map_err(|e| format!("cuBLASLt has no algorithm ({e}) for {problem:?}"))?;
        // SAFETY: as the caller says.
        let launched = unsafe { plan.descriptors.launch(self.handle, &plan.algorithm, at, at.out, stream) };
        launched.map_err(|e| {
            if problem.epilogue != Epilogue::None {
                // Without the epilogue it may work.
                self.plans().insert(*problem, Err(e));
            }
            format!("cuBLASLt could not multiply ({e}): {problem:?}")
        })
    }

    fn plan(&self, problem: &Problem, at: &Addresses) -> Result<Arc<Plan>, CublasError> {
        let mut plans = self.plans();
        if let Some(plan) = plans.get(problem) {
            return plan.clone();
        }
        let plan = self.choose(problem, at).map(Arc::new);
        plans.insert(*problem, plan.clone());
        plan
    }

    fn choose(&self, problem: &Problem, at: &Addresses) -> Result<Plan, CublasError> {
        let descriptors = Descriptors::new(problem, at.vector)?;
        let algorithm = descriptors.candidates(self.handle, 1)?[0];
        Ok(Plan { descriptors, algorithm })
    }

    /// What a thread left that panicked while it chose is whole: plans are put in when they are made.
    fn plans(&self) -> std::sync::MutexGuard<'_, HashMap<Problem, Result<Arc<Plan>, CublasError>>> {
        self.plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
