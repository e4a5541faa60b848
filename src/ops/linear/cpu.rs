//! Products of fp32 matrices on the CPU, by the kernel of the crate `cpu-kernels`, which reads both sides and writes the
//! result where they lie.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_flex::FlexTensor;
use cpu_kernels::product::product_here;
use cpu_kernels::{Matrix, Target, reduce};
use rayon::prelude::*;

use super::{Gradient, Output, Side};
use crate::ops::cpu::{contiguous, flex};

/// Whether the kernel multiplies these.
pub fn takes(lhs: &Side<Flex>, rhs: &Side<Flex>, output: &Output<Flex>) -> bool {
    let to = match output {
        Output::New(dtype) => *dtype,
        Output::AddTo(tensor) | Output::Into { tensor, .. } => tensor.dtype(),
    };
    let is_readable = |side: &Side<Flex>| {
        side.tensor.dtype() == DType::F32 && side.tensor.layout().strides().iter().all(|stride| *stride >= 0)
    };
    to == DType::F32 && is_readable(lhs) && is_readable(rhs)
}

/// lhs · rhs of two matrices or of two batches of them; a new result with `bias` in every row.
///
/// # Panics
/// When the shapes do not fit, or a bias comes with a result that is not new.
pub fn product(lhs: &Side<Flex>, rhs: &Side<Flex>, bias: Option<&FlexTensor>, output: Output<Flex>) -> FlexTensor {
    let batch = batch(lhs);
    assert_eq!(lhs.tensor.rank(), rhs.tensor.rank(), "matmul: the ranks");
    assert_eq!(batch, self::batch(rhs), "matmul: the batches");
    let (first, second) = (matrix(lhs, 0), matrix(rhs, 0));
    let (m, n) = (first.rows, second.columns);
    let mut shape = lhs.tensor.shape();
    let rank = shape.num_dims();
    (shape[rank - 2], shape[rank - 1]) = (m, n);
    match output {
        Output::New(_) => {
            let bias = bias.map(|bias| contiguous(bias.clone()));
            let bias: Option<&[f32]> = bias.as_ref().map(FlexTensor::storage);
            // SAFETY: a product writes all of its result, and each matrix of a batch is one.
            let numbers = unsafe {
                cpu_kernels::filled(batch * m * n, |memory| {
                    each(lhs, rhs, memory, m * n, |memory| {
                        let target = Target::new(memory, n);
                        bias.iter().fold(target, |target, bias| target.bias(bias))
                    });
                })
            };
            flex(numbers, shape)
        }
        Output::AddTo(tensor) => {
            assert!(bias.is_none(), "matmul: a bias belongs to a new result");
            assert_eq!(tensor.shape(), shape, "matmul: the tensor that is added to");
            let mut tensor = contiguous(tensor);
            each(lhs, rhs, tensor.storage_mut(), m * n, |memory| Target::add_to(memory, n));
            tensor
        }
        Output::Into { tensor, rows, accumulate } => {
            assert!(bias.is_none(), "matmul: a bias belongs to a new result");
            let into = tensor.shape();
            assert!(rows.end <= into[rank - 2], "matmul: {rows:?} of {} rows", into[rank - 2]);
            (shape[rank - 2], shape[rank - 1]) = (into[rank - 2], n);
            assert_eq!((into.clone(), rows.len()), (shape, m), "matmul: the tensor that is written into");
            let mut tensor = contiguous(tensor);
            each(lhs, rhs, tensor.storage_mut(), into[rank - 2] * n, |memory| {
                let memory = &mut memory[rows.start * n..rows.end * n];
                if accumulate { Target::add_to(memory, n) } else { Target::over(memory, n) }
            });
            tensor
        }
    }
}

/// The products of a batch, into parts of `memory` of so many numbers. Many matrices take a thread each, few take all.
fn each<'a, T: Send>(
    lhs: &Side<Flex>,
    rhs: &Side<Flex>,
    memory: &'a mut [T],
    size: usize,
    target: impl Fn(&'a mut [T]) -> Target<'a> + Sync,
) {
    if memory.is_empty() {
        return;
    }
    if batch(lhs) < rayon::current_num_threads() {
        for (i, memory) in memory.chunks_mut(size).enumerate() {
            cpu_kernels::product(matrix(lhs, i), matrix(rhs, i), target(memory));
        }
    } else {
        memory.par_chunks_mut(size).enumerate().for_each(|(i, memory)| {
            product_here(matrix(lhs, i), matrix(rhs, i), target(memory));
        });
    }
}

/// Σ over the inner dimension of the side that is a linear layer's gradient; `None` where its numbers do not lie side by
/// side.
pub fn sums(side: &Side<Flex>, of: Gradient) -> Option<FlexTensor> {
    let matrix = matrix(side, 0);
    let rows = match of {
        Gradient::Lhs => matrix.transposed(),
        Gradient::Rhs => matrix,
    };
    let is_whole = rows.column == 1 && rows.row == rows.columns && side.tensor.rank() == 2;
    is_whole.then(|| {
        let sums = reduce::column_sums(&rows.data[..rows.rows * rows.columns], rows.columns);
        flex(sums, Shape::from([rows.columns]))
    })
}

fn batch(side: &Side<Flex>) -> usize {
    let shape = side.tensor.shape();
    shape[..shape.num_dims() - 2].iter().product()
}

/// One matrix of a side, where it lies.
fn matrix(side: &Side<Flex>, i: usize) -> Matrix<'_> {
    let layout = side.tensor.layout();
    let (shape, strides) = (layout.shape(), layout.strides());
    let rank = shape.num_dims();
    assert!(rank == 2 || rank == 3, "matmul: matrices, or a batch of them");
    let [row, column] = [rank - 2, rank - 1].map(|place| strides[place] as usize);
    let whole = [0..shape[rank - 2], 0..shape[rank - 1]];
    let [rows, columns] = [&side.rows, &side.columns].map(Option::clone);
    let [rows, columns] = [(rows, whole[0].clone()), (columns, whole[1].clone())].map(|(some, all)| {
        let some = some.unwrap_or_else(|| all.clone());
        assert!(
            some.start < some.end && some.end <= all.end,
            "matmul: {}..{} of {} rows or columns",
            some.start,
            some.end,
            all.end
        );
        some
    });
    let of_batch = if rank == 3 { i * strides[0] as usize } else { 0 };
    let first = layout.start_offset() + of_batch + rows.start * row + columns.start * column;
    let data = &side.tensor.storage::<f32>()[first..];
    let matrix = Matrix { data, rows: rows.len(), columns: columns.len(), row, column };
    if side.transposed { matrix.transposed() } else { matrix }
}
