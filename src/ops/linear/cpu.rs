//! Products of fp32 matrices on the CPU, by the kernel of the crate `cpu-kernels`, which reads both sides and writes the
//! result where they lie.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;
use cpu_kernels::product::product_here;
use cpu_kernels::{Matrix, Target, reduce};
use rayon::prelude::*;

use super::{Gradient, Output};
use crate::ops::cpu::{contiguous, flex};

/// lhs · rhs of two matrices or of two batches of them; a new result with `bias` in every row.
///
/// # Panics
/// When the shapes do not fit, or a bias comes with a result that is not new.
pub fn product(
    lhs: &FlexTensor,
    rhs: &FlexTensor,
    bias: Option<&FlexTensor>,
    output: Output<Flex>,
) -> FlexTensor {
    let (mut shape, rank) = (lhs.shape(), lhs.rank());
    assert_eq!(shape[..rank - 2], rhs.shape()[..rhs.rank() - 2], "matmul: the batches");
    let (batch, m, n) = (batch(lhs), shape[rank - 2], rhs.shape()[rank - 1]);
    shape[rank - 1] = n;
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
            let of_each = tensor.shape()[rank - 2];
            assert!(rows.len() == m && rows.end <= of_each, "matmul: {rows:?} of {of_each} rows");
            shape[rank - 2] = of_each;
            assert_eq!(tensor.shape(), shape, "matmul: the tensor that is written into");
            let mut tensor = contiguous(tensor);
            each(lhs, rhs, tensor.storage_mut(), of_each * n, |memory| {
                let memory = &mut memory[rows.start * n..rows.end * n];
                if accumulate { Target::add_to(memory, n) } else { Target::over(memory, n) }
            });
            tensor
        }
    }
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
pub fn sums(side: &FlexTensor, of: Gradient) -> Option<FlexTensor> {
    let matrix = matrix(side, 0);
    let rows = match of {
        Gradient::Lhs => matrix.transposed(),
        Gradient::Rhs => matrix,
    };
    (rows.column == 1 && rows.row == rows.columns).then(|| {
        let sums = reduce::column_sums(&rows.data[..rows.rows * rows.columns], rows.columns);
        flex(sums, Shape::from([rows.columns]))
    })
}

fn batch(tensor: &FlexTensor) -> usize {
    tensor.shape()[..tensor.rank() - 2].iter().product()
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
