//! Matrix products through cuBLASLt on raw device pointers: [`Blas`].
//!
//! cuBLASLt offers several algorithms for a problem, and the one that it ranks first often is not the
//! fastest. While tuning is allowed, the algorithms of a large problem are timed on the device, and
//! the fastest is kept on disk. At other times a new problem takes a remembered algorithm, or cuBLASLt's
//! own choice. All of them compute in the same type and add partial sums in fp32.

mod descriptors;
mod problem;
mod remembered;
mod tuning;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cudarc::cublaslt::result::{self as lt, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;

use super::block::Block;
use super::driver;
use crate::common::{cache, locked};
use descriptors::{Algorithm, Descriptors};
pub use problem::{Addresses, Epilogue, Fp32Math, Layout, Problem};
use remembered::Remembered;
use tuning::Fastest;

/// Scratch memory cuBLASLt may use: 32 MiB, what NVIDIA recommends for Hopper.
pub const WORKSPACE: usize = 32 << 20;

/// A cuBLASLt handle and the algorithms chosen so far.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
    /// An error is kept, so that cuBLASLt is not asked again for what it has refused.
    plans: Mutex<HashMap<Problem, Result<Arc<Plan>, CublasError>>>,
    /// The algorithm last chosen for a problem, whatever its batch size. Packed samples change the batch size from
    /// step to step, and asking cuBLASLt again and loading another kernel takes milliseconds.
    any_batch: Mutex<HashMap<Problem, Algorithm>>,
    remembered: Remembered,
    /// While tuning is allowed: called with the number of problems tuned so far.
    tuning: Mutex<Option<fn(usize)>>,
    tuned: AtomicUsize,
    /// Whether an algorithm is in use that was measured, by this process or before.
    measured: AtomicBool,
}

/// Descriptors and algorithm of one problem.
struct Plan {
    descriptors: Descriptors,
    algorithm: Algorithm,
    /// Whether tuning may find a faster one.
    open: bool,
}

// SAFETY: a cuBLASLt handle may be used by several threads at once.
unsafe impl Send for Blas {}
// SAFETY: as above; the plans are behind a mutex.
unsafe impl Sync for Blas {}

impl Blas {
    /// The library for the device `ordinal`, whose context must be current.
    ///
    /// # Errors
    /// Why cuBLASLt cannot be used.
    pub fn new(ordinal: usize) -> Result<Self, String> {
        // SAFETY: only tries to load the library; cudarc panics at the first call without it.
        if !unsafe { sys::is_culib_present() } {
            return Err("cuBLASLt (libcublasLt.so) was not found".into());
        }
        let handle = lt::create_handle().map_err(|e| format!("cuBLASLt does not start: {e}"))?;
        let remembered = Remembered {
            folder: cache::folder("matmul"),
            device: driver::name(ordinal),
            driver: driver::version(),
            library: Self::version(),
        };
        Ok(Self {
            handle,
            plans: Mutex::default(),
            any_batch: Mutex::default(),
            remembered,
            tuning: Mutex::default(),
            tuned: AtomicUsize::new(0),
            measured: AtomicBool::new(false),
        })
    }

    /// cuBLASLt's version, 130100 for 13.1.0.
    pub fn version() -> usize {
        // SAFETY: reads a constant of the library.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// Allows tuning until the guard is dropped; calls `on_tuned` after each problem, on CubeCL's thread, with the
    /// number of problems tuned so far.
    pub fn allow_tuning(&self, on_tuned: fn(usize)) -> TuningAllowed<'_> {
        *locked(&self.tuning) = Some(on_tuned);
        TuningAllowed(self)
    }

    /// Whether an algorithm is in use that was measured.
    pub fn measured(&self) -> bool {
        self.measured.load(Relaxed)
    }

    /// Whether cuBLASLt has an algorithm for the problem; `None` where the problem has not been asked for.
    pub fn accepts(&self, problem: &Problem) -> Option<bool> {
        locked(&self.plans).get(problem).map(Result::is_ok)
    }

    /// Enqueues the product on `stream`; needs the device's context to be current.
    ///
    /// # Safety
    /// The addresses must hold matrices of the problem's layouts, and its epilogue's vector, and stay
    /// allocated until the stream has run the product.
    ///
    /// # Errors
    /// When cuBLASLt has no algorithm for the problem (some types have no epilogues), or the launch
    /// fails.
    pub unsafe fn matmul(&self, problem: &Problem, at: &Addresses, stream: CUstream) -> Result<(), String> {
        // SAFETY: as the caller says.
        let plan = unsafe { self.plan(problem, at, stream) }
            .map_err(|e| format!("cuBLASLt has no algorithm ({e}) for {problem:?}"))?;
        // SAFETY: as the caller says.
        let launched = unsafe { plan.descriptors.launch(self.handle, &plan.algorithm, at, at.out, stream) };
        launched.map_err(|e| {
            if problem.epilogue != Epilogue::None {
                // Without the epilogue it may work.
                locked(&self.plans).insert(*problem, Err(e));
            }
            format!("cuBLASLt could not multiply ({e}): {problem:?}")
        })
    }

    /// # Safety
    /// As [`matmul`](Self::matmul).
    unsafe fn plan(
        &self,
        problem: &Problem,
        at: &Addresses,
        stream: CUstream,
    ) -> Result<Arc<Plan>, CublasError> {
        let on_tuned = *locked(&self.tuning);
        let mut plans = locked(&self.plans);
        match plans.get(problem) {
            // First asked for while tuning was not allowed.
            Some(Ok(plan)) if plan.open && on_tuned.is_some() => {}
            Some(plan) => return plan.clone(),
            None => {}
        }
        // SAFETY: as the caller says.
        let plan = unsafe { self.choose(problem, at, on_tuned, stream) }.map(Arc::new);
        if let Ok(plan) = &plan {
            locked(&self.any_batch).insert(Problem { batch: 0, ..*problem }, plan.algorithm);
        }
        plans.insert(*problem, plan.clone());
        plan
    }

    /// # Safety
    /// As [`matmul`](Self::matmul).
    unsafe fn choose(
        &self,
        problem: &Problem,
        at: &Addresses,
        on_tuned: Option<fn(usize)>,
        stream: CUstream,
    ) -> Result<Plan, CublasError> {
        let descriptors = Descriptors::new(problem, at.vector)?;
        let worth = problem.flops() >= tuning::MIN_FLOPS;
        if worth && let Some(data) = self.remembered.get(problem) {
            let algorithm = Algorithm { data };
            if descriptors.accept(self.handle, &algorithm) {
                self.measured.store(true, Relaxed);
                return Ok(Plan { descriptors, algorithm, open: false });
            }
        }
        let Some(on_tuned) = on_tuned.filter(|_| worth) else {
            let of_another = locked(&self.any_batch).get(&Problem { batch: 0, ..*problem }).copied();
            let algorithm = match of_another.filter(|known| descriptors.accept(self.handle, known)) {
                Some(known) => known,
                None => descriptors.candidates(self.handle, 1)?[0],
            };
            return Ok(Plan { descriptors, algorithm, open: worth });
        };
        let candidates = descriptors.candidates(self.handle, tuning::CANDIDATES)?;
        // SAFETY: as the caller says.
        let fastest = unsafe { self.fastest(&descriptors, &candidates, problem, at, stream) };
        let algorithm = candidates[fastest.as_ref().map_or(0, |fastest| fastest.candidate)];
        if let Some(fastest) = fastest {
            self.remembered.put(problem, algorithm.data, &fastest);
            self.measured.store(true, Relaxed);
            on_tuned(self.tuned.fetch_add(1, Relaxed) + 1);
        }
        Ok(Plan { descriptors, algorithm, open: false })
    }

    /// The fastest of the algorithms, found by computing the problem with each. An output that is to be
    /// overwritten serves as the trials' output, since the product that was asked for still follows; one that
    /// is to be added to in place stays as it is, and the trials write to scratch memory. `None` without that memory.
    ///
    /// # Safety
    /// As [`matmul`](Self::matmul).
    unsafe fn fastest(
        &self,
        descriptors: &Descriptors,
        candidates: &[Algorithm],
        problem: &Problem,
        at: &Addresses,
        stream: CUstream,
    ) -> Option<Fastest> {
        let scratch = match problem.accumulate && at.sum == at.out {
            true => Some(Block::new(problem.out_bytes()).ok()?),
            false => None,
        };
        let to = scratch.as_ref().map_or(at.out, Block::address);
        tuning::fastest(candidates.len(), stream, &|candidate| {
            // SAFETY: as the caller says; the scratch memory is as large as the output, and `fastest`
            // waits for its launches.
            unsafe { descriptors.launch(self.handle, &candidates[candidate], at, to, stream) }.is_ok()
        })
    }
}

/// Keeps tuning allowed.
pub struct TuningAllowed<'a>(&'a Blas);

impl Drop for TuningAllowed<'_> {
    fn drop(&mut self) {
        *locked(&self.0.tuning) = None;
    }
}
