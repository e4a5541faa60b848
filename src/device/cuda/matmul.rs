//! Matrix products of Burn's CUDA tensors through cuBLASLt.

mod bias;
mod view;

use std::ops::Range;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::blas::{Addresses, Blas, Epilogue, Fp32Math, Problem};
use super::{Gpu, address, memory};

pub use bias::{Gradient, matmul_bias, matmul_bias_gradient};
use view::Matrix;
pub use view::{Operand, View};

/// Where the product goes.
pub enum Output {
    /// A new tensor of this dtype: [m, n], or [batch, m, n].
    New(DType),
    /// Added to this tensor, whose buffer is used again when nobody else holds it.
    AddTo(CubeTensor),
    /// Written into these rows of every matrix of this tensor, or added to them; its buffer is used
    /// again when nobody else holds it.
    Into { tensor: CubeTensor, rows: Range<usize>, accumulate: bool },
}

/// Whether products with this tensor can go to cuBLASLt.
pub fn has_blas(tensor: &CubeTensor) -> bool {
    Gpu::of(tensor).is_some_and(|gpu| gpu.blas.is_ok())
}

/// lhs · rhs for matrices, or batches of as many matrices, of one dtype: f32, bf16 or f16, accumulated
/// in f32. Transposes and parts are read in place; so are tensors that Burn transposed without moving
/// them. Returns the whole of the tensor that was written.
///
/// # Panics
/// When the shapes or dtypes do not fit, cuBLASLt is missing, or the device is out of memory.
pub fn matmul(lhs: impl Into<View>, rhs: impl Into<View>, output: Output, math: Fp32Math) -> CubeTensor {
    let product = Product::new(lhs.into(), rhs.into(), output, math);
    product.issue();
    product.out.tensor
}

/// A product whose shapes fit.
struct Product {
    lhs: Matrix,
    rhs: Matrix,
    out: Matrix,
    math: Fp32Math,
    accumulate: bool,
}

impl Product {
    fn new(lhs: View, rhs: View, output: Output, math: Fp32Math) -> Self {
        let rank = lhs.operand.tensor.rank();
        assert_eq!(rank, rhs.operand.tensor.rank(), "matmul: both sides must have one rank");
        let (lhs, rhs) = (Matrix::new(lhs), Matrix::new(rhs));
        let (batch, dtype) = (lhs.batch, lhs.tensor.dtype);
        assert_eq!(batch, rhs.batch, "matmul: both sides must hold as many matrices");
        assert_eq!(dtype, rhs.tensor.dtype, "matmul: both sides must have one dtype");
        assert!(
            matches!(dtype, DType::F32 | DType::BF16 | DType::F16),
            "matmul multiplies f32, bf16 and f16, not {dtype:?}"
        );
        let ([rows, inner], [other, columns]) = (lhs.shape(), rhs.shape());
        assert_eq!(inner, other, "matmul: [{rows}, {inner}] times [{other}, {columns}]");
        assert!(batch * rows * columns * inner > 0, "matmul: an empty matrix");

        let (out, part, accumulate) = match output {
            Output::New(dtype) => {
                let (client, device) = (lhs.tensor.client.clone(), lhs.tensor.device.clone());
                let shape = match rank {
                    2 => Shape::from([rows, columns]),
                    _ => Shape::from([batch, rows, columns]),
                };
                (empty_device_contiguous_dtype(client, device, shape, dtype), None, false)
            }
            Output::AddTo(tensor) => (ours(tensor), None, true),
            Output::Into { tensor, rows, accumulate } => (ours(tensor), Some(rows), accumulate),
        };
        assert_eq!(out.rank(), rank, "matmul: the rank of the tensor that is written into");
        let whole = View::from(Operand { tensor: out, transposed: false });
        let out = Matrix::new(View { rows: part, ..whole });
        assert_eq!(
            (out.batch, out.shape()),
            (batch, [rows, columns]),
            "matmul: the shape of the tensor that is written into"
        );
        Self { lhs, rhs, out, math, accumulate }
    }

    /// Enqueues the product.
    fn issue(&self) {
        let gpu = self.begin();
        let lane = gpu.lane();
        lane.stream
            .submit(|stream| {
                let (problem, at, _guards) = self.resolve(Epilogue::None, None, lane.workspace)?;
                // SAFETY: the layouts are those of the tensors at these addresses. The guards keep
                // them in place until the product is in the stream, and CubeCL uses freed memory
                // again in stream order.
                unsafe { self.blas(gpu).matmul(&problem, &at, stream) }
            })
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// Enqueues the product and `epilogue` with its vector, in one kernel; without the epilogue where
    /// cuBLASLt refuses it, and then returns false.
    fn issue_with(&self, epilogue: Epilogue, vector: &CubeTensor) -> bool {
        let gpu = self.begin();
        let lane = gpu.lane();
        lane.stream
            .submit(|stream| {
                let (problem, at, _guards) = self.resolve(epilogue, Some(vector), lane.workspace)?;
                let blas = self.blas(gpu);
                // SAFETY: as in `issue`, and the vector is as long as the epilogue needs it.
                if unsafe { blas.matmul(&problem, &at, stream) }.is_ok() {
                    return Ok(true);
                }
                let plain = Problem { epilogue: Epilogue::None, ..problem };
                // SAFETY: as in `issue`.
                unsafe { blas.matmul(&plain, &at, stream) }.map(|()| false)
            })
            .unwrap_or_else(|e: String| panic!("{e}"))
    }

    fn begin(&self) -> &'static Gpu {
        let gpu = Gpu::of(&self.lhs.tensor).expect("a CUDA tensor");
        // A missing library is told on this thread, not on CubeCL's.
        let _ = self.blas(gpu);
        memory::observe(gpu);
        gpu
    }

    fn blas(&self, gpu: &'static Gpu) -> &'static Blas {
        gpu.blas.as_ref().unwrap_or_else(|reason| {
            panic!(
                "matrix products on CUDA need cuBLASLt: {reason}; install the CUDA libraries or set LD_LIBRARY_PATH"
            )
        })
    }

    /// The problem and where its parts lie, as long as the guards live.
    fn resolve(
        &self,
        epilogue: Epilogue,
        vector: Option<&CubeTensor>,
        workspace: u64,
    ) -> Result<(Problem, Addresses, impl Sized + use<>), String> {
        let client = &self.out.tensor.client;
        let lhs = address(client, &self.lhs.tensor.handle)?;
        let rhs = address(client, &self.rhs.tensor.handle)?;
        let out = address(client, &self.out.tensor.handle)?;
        let vector = vector.map(|vector| address(client, &vector.handle)).transpose()?;
        let problem = Problem {
            lhs: self.lhs.layout(lhs.pointer),
            rhs: self.rhs.layout(rhs.pointer),
            out: self.out.layout(out.pointer),
            batch: self.out.batch,
            // The same problem whatever is asked for.
            math: if self.lhs.tensor.dtype == DType::F32 { self.math } else { Fp32Math::Exact },
            accumulate: self.accumulate,
            epilogue,
        };
        let addresses = Addresses {
            lhs: self.lhs.address(lhs.pointer),
            rhs: self.rhs.address(rhs.pointer),
            out: self.out.address(out.pointer),
            vector: vector.as_ref().map_or(0, |vector| vector.pointer),
            workspace,
        };
        Ok((problem, addresses, (lhs, rhs, out, vector)))
    }
}

/// The tensor, or a copy where somebody else holds it, packed.
fn ours(tensor: CubeTensor) -> CubeTensor {
    match (tensor.is_contiguous(), tensor.can_mut()) {
        (true, true) => tensor,
        (true, false) => tensor.copy(),
        (false, _) => into_contiguous(tensor),
    }
}
