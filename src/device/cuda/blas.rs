//! Matrix products through cuBLASLt on raw device pointers.
//!
//! cuBLASLt thinks in columns. A row-major [rows, columns] matrix is the column-major
//! [columns, rows] matrix of its transpose, so the row-major product C = A B is computed as
//! Cᵀ = Bᵀ Aᵀ: the operands change places and every transposition flag stays as it is.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use burn::tensor::DType;
use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys::{
    self, cublasLtMatmulDescAttributes_t as Desc, cublasLtMatmulPreferenceAttributes_t as Pref,
};
use cudarc::driver::sys::CUstream;

/// Scratch memory cuBLASLt may use: 32 MiB, what NVIDIA recommends for Hopper.
pub const WORKSPACE: usize = 32 << 20;

/// cublasOperation_t, which cuBLAS declares and cuBLASLt's bindings leave out.
const OP_N: i32 = 0;
const OP_T: i32 = 1;

/// How fp32 operands are multiplied. The other types accumulate in fp32 in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp32Math {
    /// IEEE binary32 products and sums.
    Exact,
    /// Operands rounded to TF32 (10 bits of mantissa) on the tensor cores.
    Tf32,
}

/// One operand as it lies in memory: row-major, rows `stride` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
    /// Whether the product takes the transpose of what lies in memory.
    pub transposed: bool,
    /// Bytes the address is a multiple of, at most 256.
    pub alignment: u32,
}

/// What decides the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    pub lhs: Layout,
    pub rhs: Layout,
    pub out: Layout,
    pub math: Fp32Math,
    /// Whether the product is added to what `out` holds.
    pub accumulate: bool,
}

/// Device addresses of a [`Problem`]'s matrices and of [`WORKSPACE`] bytes of scratch memory.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub lhs: u64,
    pub rhs: u64,
    pub out: u64,
    pub workspace: u64,
}

/// A cuBLASLt handle and the algorithms chosen so far.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
    plans: Mutex<HashMap<Problem, Arc<Plan>>>,
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
    /// The addresses must hold matrices of the problem's layouts and stay allocated until the
    /// stream has run the product.
    ///
    /// # Errors
    /// When cuBLASLt has no algorithm for the problem, or the launch fails.
    pub unsafe fn matmul(&self, problem: Problem, at: Addresses, stream: CUstream) -> Result<(), String> {
        let plan = self.plan(problem)?;
        let one = 1.0f32;
        let beta = if problem.accumulate { 1.0f32 } else { 0.0 };
        // SAFETY: the descriptors live in `plan`; the addresses are the caller's to vouch for.
        unsafe {
            lt::matmul(
                self.handle,
                plan.description,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                at.rhs as *const c_void,
                plan.rhs,
                at.lhs as *const c_void,
                plan.lhs,
                at.out as *const c_void,
                plan.out,
                at.out as *mut c_void,
                plan.out,
                &raw const plan.algorithm,
                at.workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        }
        .map_err(|e| format!("cuBLASLt could not multiply ({e}): {problem:?}"))
    }

    fn plan(&self, problem: Problem) -> Result<Arc<Plan>, String> {
        let mut plans = self.plans.lock().map_err(|_| "a thread panicked while choosing a matmul")?;
        if let Some(plan) = plans.get(&problem) {
            return Ok(plan.clone());
        }
        let plan = Plan::new(self.handle, &problem)
            .map_err(|e| format!("cuBLASLt has no algorithm ({e}) for {problem:?}"))?;
        let plan = Arc::new(plan);
        plans.insert(problem, plan.clone());
        Ok(plan)
    }
}

/// Descriptors and algorithm of one problem; kept for the life of the process.
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    lhs: sys::cublasLtMatrixLayout_t,
    rhs: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: descriptors are only read once the plan is made.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    fn new(handle: sys::cublasLtHandle_t, problem: &Problem) -> Result<Self, lt::CublasError> {
        let compute = match (problem.lhs.dtype, problem.math) {
            (DType::F32, Fp32Math::Tf32) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let description = lt::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)?;
        let flag = |layout: &Layout| match layout.transposed {
            true => OP_T,
            false => OP_N,
        };
        // The operands change places: cuBLASLt's A is our right-hand side.
        for (attribute, flag) in [
            (Desc::CUBLASLT_MATMUL_DESC_TRANSA, flag(&problem.rhs)),
            (Desc::CUBLASLT_MATMUL_DESC_TRANSB, flag(&problem.lhs)),
        ] {
            // SAFETY: both attributes are 32-bit integers.
            unsafe { lt::set_matmul_desc_attribute(description, attribute, (&raw const flag).cast(), 4)? };
        }
        let matrix = |layout: &Layout| {
            let (rows, columns) = (layout.columns as u64, layout.rows as u64);
            lt::create_matrix_layout(data_type(layout.dtype), rows, columns, layout.stride as i64)
        };
        let (lhs, rhs, out) = (matrix(&problem.lhs)?, matrix(&problem.rhs)?, matrix(&problem.out)?);

        let preference = lt::create_matmul_pref()?;
        let workspace = WORKSPACE;
        // Partial sums of a split product are added in fp32, never in the output's type.
        let reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        let alignments = [
            (Pref::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction),
            (Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.rhs.alignment),
            (Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.lhs.alignment),
            (Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.out.alignment),
            (Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.out.alignment),
        ];
        // SAFETY: the sizes are those of the attributes' types, size_t and uint32_t; the
        // descriptors were made above.
        let found = unsafe {
            let bytes = Pref::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            lt::set_matmul_pref_attribute(preference, bytes, (&raw const workspace).cast(), 8)?;
            for (attribute, value) in alignments {
                lt::set_matmul_pref_attribute(preference, attribute, (&raw const value).cast(), 4)?;
            }
            let found = lt::get_matmul_algo_heuristic(handle, description, rhs, lhs, out, out, preference);
            lt::destroy_matmul_pref(preference)?;
            found?
        };
        Ok(Self { description, lhs, rhs, out, algorithm: found.algo })
    }
}

fn data_type(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::F32 => sys::cudaDataType::CUDA_R_32F,
        DType::BF16 => sys::cudaDataType::CUDA_R_16BF,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        other => unreachable!("matmul checks the dtype; {other:?} is not one"),
    }
}
