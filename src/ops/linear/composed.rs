//! Products composed of Burn's own operators, on any backend.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, TensorMetadata};
use burn::tensor::{DType, FloatDType, Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_flex::FlexTensor;

use super::{Output, Side, cpu};

/// A backend's own product of matrices or of batches of them.
pub trait Multiplies: Backend {
    fn multiply(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        burns::<Self>(lhs, rhs)
    }
}

fn burns<B: Backend>(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
    B::float_matmul(lhs, rhs)
}

impl Multiplies for CubeBackend {}

impl Multiplies for Flex {
    fn multiply(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
        cpu::product(&lhs, &rhs).unwrap_or_else(|| burns::<Self>(lhs, rhs))
    }
}

/// lhs · rhs, and `bias` in every row, in the output's dtype.
pub fn product<B: Multiplies>(
    lhs: Side<B>,
    rhs: Side<B>,
    bias: Option<FloatTensor<B>>,
    output: Output<B>,
) -> FloatTensor<B> {
    assert_eq!(lhs.tensor.dtype(), rhs.tensor.dtype(), "matmul: both sides must have one dtype");
    let dtype = match &output {
        Output::New(dtype) => *dtype,
        Output::AddTo(tensor) | Output::Into { tensor, .. } => tensor.dtype(),
    };
    let (lhs, rhs) = (operand(lhs, dtype), operand(rhs, dtype));
    assert_eq!(lhs.shape()[..lhs.rank() - 2], rhs.shape()[..rhs.rank() - 2], "matmul: the batches");
    let mut product = B::multiply(lhs, rhs);
    if let Some(bias) = bias {
        assert_eq!(bias.dtype(), dtype, "matmul: the bias must have the output's dtype");
        let mut row = vec![1; product.rank()];
        row[product.rank() - 1] = bias.shape().num_elements();
        assert_eq!(row.last(), product.shape().last(), "matmul: the length of the bias");
        product = B::float_add(product, B::float_reshape(bias, Shape::from(row)));
    }
    match output {
        Output::New(_) => product,
        Output::AddTo(tensor) => {
            assert_eq!(tensor.shape(), product.shape(), "matmul: the tensor that is added to");
            B::float_add(tensor, product)
        }
        Output::Into { tensor, rows, accumulate } => {
            let part = part(&tensor.shape(), Some(rows), None);
            if accumulate {
                product = B::float_add(B::float_slice(tensor.clone(), &part), product);
            }
            B::float_slice_assign(tensor, &part, product)
        }
    }
}

/// What is multiplied, widened to `dtype`: that gives the accumulator's precision.
fn operand<B: Backend>(side: Side<B>, dtype: DType) -> FloatTensor<B> {
    let Side { mut tensor, transposed, rows, columns } = side;
    if rows.is_some() || columns.is_some() {
        let part = part(&tensor.shape(), rows, columns);
        tensor = B::float_slice(tensor, &part);
    }
    if transposed {
        tensor = B::float_transpose(tensor);
    }
    if tensor.dtype() == dtype { tensor } else { B::float_cast(tensor, FloatDType::from(dtype)) }
}

/// These rows and columns of every matrix.
fn part(shape: &Shape, rows: Option<Range<usize>>, columns: Option<Range<usize>>) -> Vec<Slice> {
    let mut part: Vec<Range<usize>> = shape.iter().map(|size| 0..*size).collect();
    let rank = part.len();
    for (place, some) in [(rank - 2, rows), (rank - 1, columns)] {
        if let Some(some) = some {
            assert!(
                some.start < some.end && some.end <= part[place].end,
                "matmul: {}..{} of {} rows or columns",
                some.start,
                some.end,
                part[place].end
            );
            part[place] = some;
        }
    }
    part.into_iter().map(Slice::from).collect()
}
