//! How kernels are launched: their grids, the types and buffers of their arguments, and the
//! tensors their results go to.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::FloatKind;
use cubecl::prelude::*;

pub use crate::device::cuda::{empty, sizes, writable};

/// Threads in a block: enough blocks fit on a multiprocessor to hide the memory's latency.
pub const THREADS: usize = 256;
/// The widest load of a thread.
const VECTOR_BYTES: usize = 16;

/// How an element-wise kernel covers its elements.
pub struct Grid {
    pub count: CubeCount,
    pub dim: CubeDim,
}

impl Grid {
    /// One thread for each of `threads` pieces of work.
    pub fn of(threads: usize) -> Self {
        Self {
            count: CubeCount::Static(threads.div_ceil(THREADS) as u32, 1, 1),
            dim: CubeDim::new_1d(THREADS as u32),
        }
    }
}

/// Launches an element-wise kernel with these arguments: a thread for each vector of so many elements of the tensor.
macro_rules! elementwise {
    ($kernel:ident, $tensor:expr, $vector:expr, $($argument:expr),+ $(,)?) => {{
        let (tensor, vector): (&CubeTensor, usize) = ($tensor, $vector);
        let grid = $crate::ops::kernels::launch::Grid::of(tensor.meta.num_elements() / vector);
        // SAFETY: a buffer holds no more elements than its tensor, and an element-wise kernel checks their end.
        unsafe {
            $kernel::launch_unchecked(&tensor.client, grid.count, grid.dim, vector, $($argument),+);
        }
    }};
}
pub(crate) use elementwise;

/// Any index made safe for a kernel: `last` where it is larger or negative.
#[cube]
pub fn at_most(index: i32, last: usize) -> usize {
    let mut within = last;
    if index >= 0 && (index as usize) < last {
        within = index as usize;
    }
    within
}

/// Elements that a thread reads at once: as many of `widest` as one load holds, and a divisor of
/// every length.
pub fn vector(widest: DType, lengths: &[usize]) -> usize {
    let mut vector = VECTOR_BYTES / widest.size();
    while lengths.iter().any(|length| !length.is_multiple_of(vector)) {
        vector /= 2;
    }
    vector
}

/// The larger of two element types.
pub fn wider(a: DType, b: DType) -> DType {
    if a.size() >= b.size() { a } else { b }
}

/// The type of a kernel's elements.
///
/// # Panics
/// For any type but f32, bf16 and f16.
pub fn float(dtype: DType) -> ElemType {
    ElemType::Float(match dtype {
        DType::F32 => FloatKind::F32,
        DType::BF16 => FloatKind::BF16,
        DType::F16 => FloatKind::F16,
        other => panic!("the kernels compute on f32, bf16 and f16, not {other:?}"),
    })
}

/// `tensor` with its elements in row-major order, moved if they are not.
pub fn contiguous(tensor: &CubeTensor) -> CubeTensor {
    burn_cubecl::kernel::into_contiguous(tensor.clone())
}

/// The argument for the whole of a contiguous tensor.
pub fn buffer(tensor: &CubeTensor) -> BufferArg {
    let elements = tensor.meta.num_elements();
    assert!(tensor.is_contiguous(), "kernels take contiguous tensors, not {:?}", tensor.meta);
    assert!(u32::try_from(elements).is_ok(), "kernels count elements in 32 bits: {elements} are too many");
    // A kernel takes a buffer's length from the size of its memory, which Burn rounds up: 896 elements of bf16
    // lie in 2048 bytes. What lies behind the elements must not be read, and must not count as elements.
    let handle = tensor.handle.clone();
    let behind = handle.size_in_used() - (elements * tensor.dtype.size()) as u64;
    // SAFETY: a contiguous tensor holds as many elements as its shape says.
    unsafe { BufferArg::from_raw_parts(handle.offset_end(behind), elements) }
}

/// A new tensor of the same shape and device.
pub fn like(tensor: &CubeTensor, dtype: DType) -> CubeTensor {
    empty(tensor, tensor.meta.shape().clone(), dtype)
}

/// Where a result of the shape of `input` goes: into the memory of `input`, which is argument
/// `position` of the kernel, when it has that type and nobody else holds it; else into a new one.
pub fn over(input: &CubeTensor, position: usize, dtype: DType) -> (CubeTensor, BufferArg) {
    if input.dtype == dtype && input.can_mut() {
        return in_place(input, position);
    }
    let new = like(input, dtype);
    let argument = buffer(&new);
    (new, argument)
}

/// The memory of `input`, which nobody else reads (see [`writable`]), as the result of a kernel whose argument `position`
/// it is.
///
/// A kernel that leaves elements as they are must take this and not [`over`]. CubeCL's thread holds new memory for a
/// moment while it allocates it, so whoever asks twice whether a tensor is held by others may get two answers.
pub fn in_place(input: &CubeTensor, position: usize) -> (CubeTensor, BufferArg) {
    (input.clone(), BufferArg::alias(position, input.meta.num_elements()))
}

/// Checks the type and the number of elements of an argument.
pub fn expect(tensor: &CubeTensor, dtype: DType, elements: usize, name: &str) {
    assert_eq!(tensor.dtype, dtype, "the type of {name}");
    assert_eq!(tensor.meta.num_elements(), elements, "the elements of {name}");
}
