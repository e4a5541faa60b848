//! Matrix products of Burn's CUDA tensors through cuBLASLt.

mod bias;
mod view;

use std::ops::Range;
use std::sync::mpsc;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::server::{BufferBinding, Handle};
use cudarc::driver::sys::CUstream;

use super::blas::{Addresses, Blas, Epilogue, Fp32Math, Problem};
use super::stream::Buffers;
use super::{Gpu, empty, memory, writable};

pub use bias::matmul_bias;
use view::{Matrix, Place};
pub use view::{Operand, View};

/// Where the product goes.
pub enum Output {
    /// A new tensor of this dtype: [m, n], or [batch, m, n].
    New(DType),
    /// Added to this tensor, whose buffer is used again when nobody else holds it.
    AddTo(CubeTensor),
    /// The sum with this tensor as a new one of its type and shape.
    Onto(CubeTensor),
    /// Written into these rows and columns (`None`: all of them) of every matrix of this tensor, or added to them;
    /// its buffer is used again when nobody else holds it.
    Into { tensor: CubeTensor, rows: Range<usize>, columns: Option<Range<usize>>, accumulate: bool },
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
    /// What the product is added to where that is not `out`, packed as it is.
    onto: Option<CubeTensor>,
    math: Fp32Math,
    accumulate: bool,
}

impl Product {
    fn new(lhs: View, rhs: View, output: Output, math: Fp32Math) -> Self {
        let rank = lhs.operand.tensor.rank();
        assert_eq!(rank, rhs.operand.tensor.rank(), "matmul: both sides must have one rank");
        let (lhs, rhs) = (Matrix::new(lhs), Matrix::new(rhs));
        let (batch, dtype) = (lhs.place.batch, lhs.tensor.dtype);
        assert_eq!(batch, rhs.place.batch, "matmul: both sides must hold as many matrices");
        assert_eq!(dtype, rhs.tensor.dtype, "matmul: both sides must have one dtype");
        assert!(
            matches!(dtype, DType::F32 | DType::BF16 | DType::F16),
            "matmul multiplies f32, bf16 and f16, not {dtype:?}"
        );
        let ([rows, inner], [other, columns]) = (lhs.shape(), rhs.shape());
        assert_eq!(inner, other, "matmul: [{rows}, {inner}] times [{other}, {columns}]");
        assert!(batch * rows * columns * inner > 0, "matmul: an empty matrix");

        let shape = match rank {
            2 => Shape::from([rows, columns]),
            _ => Shape::from([batch, rows, columns]),
        };
        let mut onto = None;
        let (out, (out_rows, out_columns), accumulate) = match output {
            Output::New(dtype) => (empty(&lhs.tensor, shape, dtype), (None, None), false),
            Output::Onto(tensor) => {
                assert_eq!(tensor.meta.shape(), &shape, "matmul: the shape of the tensor that is added");
                let tensor = onto.insert(into_contiguous(tensor));
                (empty(&lhs.tensor, shape, tensor.dtype), (None, None), true)
            }
            Output::AddTo(tensor) => (writable(tensor), (None, None), true),
            Output::Into { tensor, rows, columns, accumulate } => {
                (writable(tensor), (Some(rows), columns), accumulate)
            }
        };
        assert_eq!(out.rank(), rank, "matmul: the rank of the tensor that is written into");
        let whole = View::from(Operand { tensor: out, transposed: false });
        let out = Matrix::new(View { rows: out_rows, columns: out_columns, ..whole });
        assert_eq!(
            (out.place.batch, out.shape()),
            (batch, [rows, columns]),
            "matmul: the shape of the tensor that is written into"
        );
        Self { lhs, rhs, out, onto, math, accumulate }
    }

    /// Enqueues the product.
    fn issue(&self) {
        let (gpu, blas) = self.begin();
        self.call(gpu, Epilogue::None, None).enqueue(gpu, blas);
    }

    /// Enqueues the product and `epilogue` with its vector, in one kernel. Where cuBLASLt refuses the epilogue, enqueues
    /// the product without it and returns false. Waits for the answer when the problem is new.
    fn issue_with(&self, epilogue: Epilogue, vector: &CubeTensor) -> bool {
        let (gpu, blas) = self.begin();
        let call = self.call(gpu, epilogue, Some(&vector.handle));
        // CubeCL's buffers begin at multiples of 256 bytes, so the offsets of the parts decide their alignment.
        match blas.accepts(&call.problem(self.offsets())) {
            Some(true) => {
                call.enqueue(gpu, blas);
                true
            }
            Some(false) => {
                self.issue();
                false
            }
            None => {
                let (sender, receiver) = mpsc::channel();
                gpu.stream().enqueue(Some(call.out()), move |buffers, stream| {
                    let accepted = call.run(buffers, blas, stream).is_ok();
                    let _ = sender.send(accepted);
                    if accepted { Ok(()) } else { call.without_epilogue().run(buffers, blas, stream) }
                });
                // All that was enqueued has run, or this panics.
                gpu.stream().submit(|_| ());
                receiver.recv().expect("the call has run")
            }
        }
    }

    fn begin(&self) -> (&'static Gpu, &'static Blas) {
        let gpu = Gpu::of(&self.lhs.tensor).expect("a CUDA tensor");
        // A missing library is reported on this thread, not on CubeCL's.
        let blas = gpu.blas.as_ref().unwrap_or_else(|reason| {
            panic!(
                "matrix products on CUDA need cuBLASLt: {reason}; install it (pip's nvidia-cublas-cu12, or \
                 nvidia-cublas with a driver of CUDA 13) or set LD_LIBRARY_PATH"
            )
        });
        memory::observe(gpu);
        (gpu, blas)
    }

    /// Bytes between the beginnings of the buffers and of the tensors in them, and that of what the product is added to.
    fn offsets(&self) -> ([u64; 3], u64) {
        let of = |tensor: &CubeTensor| tensor.handle.offset_start.unwrap_or(0);
        let sides = [&self.lhs, &self.rhs, &self.out].map(|side| of(&side.tensor));
        (sides, self.onto.as_ref().map_or(sides[2], of))
    }

    fn call(&self, gpu: &Gpu, epilogue: Epilogue, vector: Option<&Handle>) -> Call {
        let sides = [&self.lhs, &self.rhs, &self.out];
        Call {
            places: sides.map(|side| side.place),
            buffers: sides.map(|side| side.tensor.handle.clone().binding()),
            onto: self.onto.as_ref().map(|tensor| tensor.handle.clone().binding()),
            vector: vector.map(|vector| vector.clone().binding()),
            workspace: gpu.lane().workspace,
            math: self.math,
            accumulate: self.accumulate,
            epilogue,
        }
    }
}

/// A product in CubeCL's queue: left-hand side, right-hand side and output.
struct Call {
    places: [Place; 3],
    buffers: [BufferBinding; 3],
    /// What the product is added to where that is not the output; it lies as the output does.
    onto: Option<BufferBinding>,
    vector: Option<BufferBinding>,
    workspace: u64,
    math: Fp32Math,
    accumulate: bool,
    epilogue: Epilogue,
}

impl Call {
    fn without_epilogue(self) -> Self {
        Self { epilogue: Epilogue::None, ..self }
    }

    /// What cuBLASLt computes when the tensors lie at `pointers`, and what the product is added to at `sum`.
    fn problem(&self, (pointers, sum): ([u64; 3], u64)) -> Problem {
        let [lhs, rhs, mut out] = std::array::from_fn(|i| self.places[i].layout(pointers[i]));
        out.alignment = out.alignment.min(self.places[2].layout(sum).alignment);
        Problem {
            lhs,
            rhs,
            out,
            batch: self.places[2].batch,
            // Other types multiply in one way, so all such problems are the same.
            math: if lhs.dtype == DType::F32 { self.math } else { Fp32Math::Exact },
            accumulate: self.accumulate,
            epilogue: self.epilogue,
        }
    }

    fn enqueue(self, gpu: &Gpu, blas: &'static Blas) {
        gpu.stream().enqueue(Some(self.out()), move |buffers, stream| self.run(buffers, blas, stream));
    }

    fn out(&self) -> BufferBinding {
        self.buffers[2].clone()
    }

    fn run(&self, buffers: &mut Buffers<'_>, blas: &Blas, stream: CUstream) -> Result<(), String> {
        let [lhs, rhs, out] = self.buffers.clone();
        let (lhs, rhs, out) = (buffers.locate(lhs)?, buffers.locate(rhs)?, buffers.locate(out)?);
        let vector = self.vector.clone().map(|vector| buffers.locate(vector)).transpose()?;
        let onto = self.onto.clone().map(|onto| buffers.locate(onto)).transpose()?;
        let pointers = [lhs.pointer, rhs.pointer, out.pointer];
        let onto = onto.as_ref().map_or(out.pointer, |onto| onto.pointer);
        let [lhs, rhs, out] = std::array::from_fn(|i| self.places[i].address(pointers[i]));
        let sum = self.places[2].address(onto);
        let vector = vector.as_ref().map_or(0, |vector| vector.pointer);
        let at = Addresses { lhs, rhs, out, sum, vector, workspace: self.workspace };
        // SAFETY: the layouts are those of the tensors at these addresses, what is added lies as the output does, and the
        // vector is as long as the epilogue needs it. What was located stays in place until the product is in the stream,
        // and CubeCL uses freed memory again in stream order.
        unsafe { blas.matmul(&self.problem((pointers, onto)), &at, stream) }
    }
}
