//! Matrix products of Burn's CUDA tensors through cuBLASLt.

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::blas::{Addresses, Fp32Math, Layout, Problem};
use super::{Gpu, address, memory};

/// One side of a product, or its transpose.
pub struct Operand {
    pub tensor: CubeTensor,
    pub transposed: bool,
}

/// Where the product goes.
#[expect(clippy::large_enum_variant, reason = "made for one call and taken apart in it")]
pub enum Output {
    /// A new tensor of this dtype.
    New(DType),
    /// Added to this tensor, whose buffer is used again when nobody else holds it.
    AddTo(CubeTensor),
}

/// Whether products with this tensor can go to cuBLASLt.
pub fn has_blas(tensor: &CubeTensor) -> bool {
    Gpu::of(tensor).is_some_and(|gpu| gpu.blas.is_ok())
}

/// lhs · rhs for two-dimensional tensors of one dtype: f32, bf16 or f16, accumulated in f32.
/// Transposes are read in place; so are tensors that Burn transposed without moving them.
///
/// # Panics
/// When the shapes or dtypes do not fit, cuBLASLt is missing, or the device is out of memory.
pub fn matmul(lhs: Operand, rhs: Operand, output: Output, math: Fp32Math) -> CubeTensor {
    let gpu = Gpu::of(&lhs.tensor).expect("a CUDA tensor");
    let blas = gpu.blas.as_ref().unwrap_or_else(|reason| {
        panic!("matrix products on CUDA need cuBLASLt: {reason}; install the CUDA libraries or set LD_LIBRARY_PATH")
    });
    let (lhs, rhs) = (Matrix::new(lhs), Matrix::new(rhs));
    let ([rows, inner], [other, columns]) = (lhs.shape(), rhs.shape());
    assert_eq!(inner, other, "matmul: [{rows}, {inner}] times [{other}, {columns}]");
    let dtype = lhs.tensor.dtype;
    assert_eq!(dtype, rhs.tensor.dtype, "matmul: both sides must have one dtype");
    assert!(
        matches!(dtype, DType::F32 | DType::BF16 | DType::F16),
        "matmul multiplies f32, bf16 and f16, not {dtype:?}"
    );
    assert!(rows * columns * inner > 0, "matmul: an empty matrix");

    let accumulate = matches!(output, Output::AddTo(_));
    let out = match output {
        Output::New(dtype) => empty_device_contiguous_dtype(
            lhs.tensor.client.clone(),
            lhs.tensor.device.clone(),
            Shape::from([rows, columns]),
            dtype,
        ),
        Output::AddTo(tensor) if tensor.can_mut() && tensor.is_contiguous() => tensor,
        Output::AddTo(tensor) => tensor.copy(),
    };
    let out = Matrix::new(Operand { tensor: out, transposed: false });
    assert_eq!(out.shape(), [rows, columns], "matmul: the shape of the tensor that is added to");

    memory::observe(gpu);
    let lane = gpu.lane();
    lane.stream
        .submit(|stream| {
            let client = &out.tensor.client;
            let lhs_at = address(client, &lhs.tensor.handle)?;
            let rhs_at = address(client, &rhs.tensor.handle)?;
            let out_at = address(client, &out.tensor.handle)?;
            let problem = Problem {
                lhs: lhs.layout(lhs_at.pointer),
                rhs: rhs.layout(rhs_at.pointer),
                out: out.layout(out_at.pointer),
                math,
                accumulate,
            };
            let addresses = Addresses {
                lhs: lhs_at.pointer,
                rhs: rhs_at.pointer,
                out: out_at.pointer,
                workspace: lane.workspace,
            };
            // SAFETY: the layouts are those of the tensors at these addresses. The guards keep them
            // in place until the product is in the stream, and CubeCL uses freed memory again in
            // stream order.
            unsafe { blas.matmul(problem, addresses, stream) }
        })
        .unwrap_or_else(|e| panic!("{e}"));
    out.tensor
}

/// An operand whose memory is row-major.
struct Matrix {
    tensor: CubeTensor,
    /// As it lies in memory.
    rows: usize,
    columns: usize,
    stride: usize,
    transposed: bool,
}

impl Matrix {
    fn new(operand: Operand) -> Self {
        let Operand { tensor, transposed } = operand;
        assert_eq!(tensor.rank(), 2, "matmul takes matrices");
        let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
        let ([rows, columns], [down, right]) = ([shape[0], shape[1]], [strides[0], strides[1]]);
        if right == 1 && down >= columns {
            return Self { tensor, rows, columns, stride: down, transposed };
        }
        if down == 1 && right >= rows {
            return Self { tensor, rows: columns, columns: rows, stride: right, transposed: !transposed };
        }
        let tensor = burn_cubecl::kernel::into_contiguous(tensor);
        Self { tensor, rows, columns, stride: columns, transposed }
    }

    /// Of the matrix that is multiplied.
    fn shape(&self) -> [usize; 2] {
        if self.transposed { [self.columns, self.rows] } else { [self.rows, self.columns] }
    }

    fn layout(&self, pointer: u64) -> Layout {
        Layout {
            dtype: self.tensor.dtype,
            rows: self.rows,
            columns: self.columns,
            stride: self.stride,
            transposed: self.transposed,
            alignment: 1 << pointer.trailing_zeros().min(8),
        }
    }
}
