//! [`Descriptors`]: a [`Problem`] as cuBLASLt describes it.
//!
//! cuBLASLt's matrices are column-major. A row-major [rows, columns] matrix is the column-major
//! [columns, rows] matrix of its transpose, so the row-major product C = A B is computed as
//! Cᵀ = Bᵀ Aᵀ: the operands change places and every transposition flag stays as it is. What
//! cuBLASLt calls A is our right-hand side, and a row of our output is one of its columns: a bias that
//! it adds to every column is added to every row.

use std::ffi::c_void;
use std::sync::Mutex;

use burn::tensor::DType;
use cudarc::cublaslt::result::{self as lt, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasLtMatmulDescAttributes_t as Desc, cublasLtMatmulPreferenceAttributes_t as Pref,
    cublasLtMatrixLayoutAttribute_t as Lay,
};
use cudarc::driver::sys::CUstream;

use super::WORKSPACE;
use super::problem::{Addresses, Epilogue, Fp32Math, Layout, Problem};

/// cublasOperation_t, which cuBLAS declares and cuBLASLt's bindings leave out.
const OP_N: i32 = 0;
const OP_T: i32 = 1;

/// How to multiply: opaque, and the same numbers mean the same in every process that has the same
/// version of the library.
pub type Algorithm = sys::cublasLtMatmulAlgo_t;

/// The descriptors of one problem.
pub struct Descriptors {
    problem: Problem,
    description: Description,
    lhs: Matrix,
    rhs: Matrix,
    out: Matrix,
    /// Held from writing the vector's address into the description until the launch has read it.
    vector: Mutex<()>,
}

// SAFETY: the handles may be used by any thread.
unsafe impl Send for Descriptors {}
// SAFETY: once made, descriptors are only read, but for the vector's address, which has a lock.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    /// `vector` is the epilogue's, which the choice of an algorithm may depend on.
    pub fn new(problem: &Problem, vector: u64) -> Result<Self, CublasError> {
        let compute = match (problem.lhs.dtype, problem.math) {
            (DType::F32, Fp32Math::Tf32) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let description = Description(lt::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)?);
        let flag = |layout: &Layout| if layout.transposed { OP_T } else { OP_N };
        description.set(Desc::CUBLASLT_MATMUL_DESC_TRANSA, flag(&problem.rhs))?;
        description.set(Desc::CUBLASLT_MATMUL_DESC_TRANSB, flag(&problem.lhs))?;
        if problem.epilogue == Epilogue::Bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            description.set(Desc::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as i32)?;
            description.set(Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector)?;
        }
        let matrix = |layout: &Layout| Matrix::new(layout, problem.batch);
        Ok(Self {
            problem: *problem,
            description,
            lhs: matrix(&problem.lhs)?,
            rhs: matrix(&problem.rhs)?,
            out: matrix(&problem.out)?,
            vector: Mutex::default(),
        })
    }

    /// Up to `count` algorithms, the one that cuBLASLt believes to be the fastest first.
    ///
    /// # Errors
    /// When there is none.
    pub fn candidates(
        &self,
        handle: sys::cublasLtHandle_t,
        count: usize,
    ) -> Result<Vec<Algorithm>, CublasError> {
        let preference = Preference(lt::create_matmul_pref()?);
        let Problem { lhs, rhs, out, .. } = &self.problem;
        // Partial sums of a split product are added in fp32, never in the output's type.
        let reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Pref::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE)?;
        preference.set(Pref::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction)?;
        preference.set(Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, rhs.alignment)?;
        preference.set(Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, lhs.alignment)?;
        preference.set(Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out.alignment)?;
        preference.set(Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out.alignment)?;
        let mut results = vec![nothing(); count];
        let mut found = 0;
        // SAFETY: all descriptors are alive, and `results` has room for `count` of them.
        unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                self.description.0,
                self.rhs.0,
                self.lhs.0,
                self.out.0,
                self.out.0,
                preference.0,
                count as i32,
                results.as_mut_ptr(),
                &mut found,
            )
        }
        .result()?;
        let found = results.iter().take(found.max(0) as usize);
        let usable = found.filter(|result| result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        let algorithms: Vec<Algorithm> = usable.map(|result| result.algo).collect();
        match algorithms.is_empty() {
            true => Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)),
            false => Ok(algorithms),
        }
    }

    /// Whether an algorithm from elsewhere fits the problem.
    pub fn accept(&self, handle: sys::cublasLtHandle_t, algorithm: &Algorithm) -> bool {
        let mut result = nothing();
        // SAFETY: all descriptors are alive; `result` is written.
        let status = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                handle,
                self.description.0,
                self.rhs.0,
                self.lhs.0,
                self.out.0,
                self.out.0,
                algorithm,
                &mut result,
            )
        };
        let fine = sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        status == fine && result.state == fine && result.workspaceSize <= WORKSPACE
    }

    /// Enqueues the product of the matrices `at`, with its result at `to`: `at.out`, or a place like it.
    ///
    /// # Safety
    /// The addresses must hold matrices of the problem's layouts until the stream has run the product.
    ///
    /// # Errors
    /// When the algorithm does not fit or the launch fails.
    pub unsafe fn launch(
        &self,
        handle: sys::cublasLtHandle_t,
        algorithm: &Algorithm,
        at: &Addresses,
        to: u64,
        stream: CUstream,
    ) -> Result<(), CublasError> {
        let one = 1.0f32;
        let beta = if self.problem.accumulate { 1.0f32 } else { 0.0 };
        let mut _held = None;
        if self.problem.epilogue != Epilogue::None {
            _held = Some(self.vector.lock());
            self.description.set(Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.vector)?;
        }
        // SAFETY: the descriptors are alive; the addresses are the caller's to vouch for.
        unsafe {
            lt::matmul(
                handle,
                self.description.0,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                at.rhs as *const c_void,
                self.rhs.0,
                at.lhs as *const c_void,
                self.lhs.0,
                at.sum as *const c_void,
                self.out.0,
                to as *mut c_void,
                self.out.0,
                algorithm,
                at.workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        }
    }
}

/// Handles of cuBLASLt that are given back when they are dropped, with their attributes.
macro_rules! handles {
    ($($name:ident($raw:ty): $attribute:ty, $set:path, $destroy:path;)*) => {$(
        struct $name($raw);

        impl $name {
            /// The value has the attribute's own type, of which cuBLASLt checks the size.
            fn set<T: Copy>(&self, attribute: $attribute, value: T) -> Result<(), CublasError> {
                // SAFETY: the handle is alive and the size is the value's.
                unsafe { $set(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the handle is not used again.
                let _ = unsafe { $destroy(self.0) };
            }
        }
    )*};
}

handles! {
    Description(sys::cublasLtMatmulDesc_t): Desc, lt::set_matmul_desc_attribute, lt::destroy_matmul_desc;
    Matrix(sys::cublasLtMatrixLayout_t): Lay, lt::set_matrix_layout_attribute, lt::destroy_matrix_layout;
    Preference(sys::cublasLtMatmulPreference_t): Pref, lt::set_matmul_pref_attribute, lt::destroy_matmul_pref;
}

impl Matrix {
    fn new(layout: &Layout, batch: usize) -> Result<Self, CublasError> {
        let (rows, columns) = (layout.columns as u64, layout.rows as u64);
        let matrix =
            Self(lt::create_matrix_layout(data_type(layout.dtype), rows, columns, layout.stride as i64)?);
        if batch > 1 {
            matrix.set(Lay::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch as i32)?;
            matrix.set(Lay::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout.batch_stride as i64)?;
        }
        Ok(matrix)
    }
}

/// A result that cuBLASLt overwrites.
fn nothing() -> sys::cublasLtMatmulHeuristicResult_t {
    sys::cublasLtMatmulHeuristicResult_t {
        algo: Algorithm { data: [0; 8] },
        workspaceSize: 0,
        state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
        wavesCount: 0.0,
        reserved: [0; 4],
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
