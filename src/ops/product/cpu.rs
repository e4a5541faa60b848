//! Products of fp32 matrices on the CPU, by the kernel of the crate `cpu-kernels`, which reads both operands and writes
//! the result where they lie.

use std::ops::Range;

use burn::backend::TensorMetadata;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;
use cpu_kernels::product::product_here;
use cpu_kernels::{Matrix, Target, reduce};
use rayon::prelude::*;

use crate::ops::backend::{flex, unflex};
use crate::ops::slices::{buffer, numbers, tensor};

/// lhs · rhs of two matrices or of two batches of them, with `bias` in every row.
pub fn product<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let shape = result(&lhs, &rhs);
    let (lhs, rhs, bias) = (flex(lhs), flex(rhs), bias.map(buffer));
    let (size, columns) = (shape[D - 2] * shape[D - 1], shape[D - 1]);
    // SAFETY: a product writes all of its result, and each matrix of a batch is one.
    let product = unsafe {
        cpu_kernels::filled(shape.iter().product(), |memory| {
            each(&lhs, &rhs, memory, size, |memory| {
                bias.iter().fold(Target::new(memory, columns), |target, bias| target.bias(numbers(bias)))
            });
        })
    };
    tensor(product, shape)
}

/// Writes lhs · rhs into these rows of every matrix of `target`, or adds it to them, in its memory where nobody else
/// holds it.
pub fn product_into<const D: usize>(
    target: Tensor<D>,
    rows: Range<usize>,
    accumulate: bool,
    lhs: Tensor<D>,
    rhs: Tensor<D>,
) -> Tensor<D> {
    let (mut shape, dims) = (result(&lhs, &rhs), target.dims());
    assert!(rows.len() == shape[D - 2] && rows.end <= dims[D - 2], "matmul: {rows:?} of {dims:?}");
    shape[D - 2] = dims[D - 2];
    assert_eq!(dims, shape, "matmul: the tensor that is written into");
    let (lhs, rhs, mut target) = (flex(lhs), flex(rhs), buffer(target));
    let columns = shape[D - 1];
    each(&lhs, &rhs, target.storage_mut(), shape[D - 2] * columns, |memory| {
        let memory = &mut memory[rows.start * columns..rows.end * columns];
        if accumulate { Target::add_to(memory, columns) } else { Target::over(memory, columns) }
    });
    unflex(target)
}

/// Σ over the rows of x, [columns]; `None` where its numbers do not lie side by side.
pub fn sums(x: Tensor<2>) -> Option<Tensor<1>> {
    let x = flex(x);
    let rows = matrix(&x, 0);
    let is_whole = rows.column == 1 && rows.row == rows.columns;
    is_whole.then(|| {
        let sums = reduce::column_sums(&rows.data[..rows.rows * rows.columns], rows.columns);
        tensor(sums, [rows.columns])
    })
}

/// The shape of a product.
fn result<const D: usize>(lhs: &Tensor<D>, rhs: &Tensor<D>) -> [usize; D] {
    let (mut shape, other) = (lhs.dims(), rhs.dims());
    assert_eq!(shape[..D - 2], other[..D - 2], "matmul: the batches");
    shape[D - 1] = other[D - 1];
    shape
}

/// The products of a batch, into parts of `memory` of so many numbers. Many matrices take a thread each, few take all.
fn each<'a, T: Send>(
    lhs: &FlexTensor,
    rhs: &FlexTensor,
    memory: &'a mut [T],
    size: usize,
    target: impl Fn(&'a mut [T]) -> Target<'a> + Sync,
) {
    if memory.is_empty() {
        return;
    }
    if memory.len() / size < rayon::current_num_threads() {
        for (i, memory) in memory.chunks_mut(size).enumerate() {
            cpu_kernels::product(matrix(lhs, i), matrix(rhs, i), target(memory));
        }
    } else {
        memory.par_chunks_mut(size).enumerate().for_each(|(i, memory)| {
            product_here(matrix(lhs, i), matrix(rhs, i), target(memory));
        });
    }
}

/// One matrix of a batch, where it lies.
fn matrix(tensor: &FlexTensor, i: usize) -> Matrix<'_> {
    let layout = tensor.layout();
    let stride =
        |place: usize| usize::try_from(layout.strides()[place]).expect("tensors are not read backwards");
    let rank = tensor.rank();
    assert!(rank == 2 || rank == 3, "matmul: matrices, or a batch of them");
    let of_batch = if rank == 3 { i * stride(0) } else { 0 };
    Matrix {
        data: &tensor.storage::<f32>()[layout.start_offset() + of_batch..],
        rows: layout.shape()[rank - 2],
        columns: layout.shape()[rank - 1],
        row: stride(rank - 2),
        column: stride(rank - 1),
    }
}
