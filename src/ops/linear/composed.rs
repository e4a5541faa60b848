//! Products composed of Burn's own operators, on any backend.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, FloatDType, Shape, Slice};

use super::{Gradient, Output, Side};

/// lhs · rhs, and `bias` in every row, in the output's dtype.
pub fn product<B: Backend>(
    lhs: Side<B>,
    rhs: Side<B>,
    bias: Option<FloatTensor<B>>,
    output: Output<B>,
) -> FloatTensor<B> {
    assert_eq!(lhs.tensor.dtype(), rhs.tensor.dtype(), "matmul: both sides must have one dtype");
    let dtype = output.dtype();
    let (lhs, rhs) = (operand(lhs, dtype), operand(rhs, dtype));
    assert_eq!(lhs.shape()[..lhs.rank() - 2], rhs.shape()[..rhs.rank() - 2], "matmul: the batches");
    let mut product = B::float_matmul(lhs, rhs);
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

/// lhs · rhs, and the sums of one side over the inner dimension, in fp32.
pub fn product_and_sums<B: Backend>(
    lhs: Side<B>,
    rhs: Side<B>,
    of: Gradient,
    output: Output<B>,
) -> (FloatTensor<B>, FloatTensor<B>) {
    assert_eq!(lhs.tensor.rank(), 2, "matmul: the gradient of a bias is that of one product");
    let (side, inner) = match of {
        Gradient::Lhs => (lhs.clone(), 1),
        Gradient::Rhs => (rhs.clone(), 0),
    };
    let gradient = operand(side, DType::F32);
    let length = gradient.shape()[1 - inner];
    let sums = B::float_reshape(B::float_sum_dim(gradient, inner), Shape::from([length]));
    (product(lhs, rhs, None, output), sums)
}

/// What is multiplied, widened to `dtype`: that gives the accumulator's precision.
pub fn operand<B: Backend>(side: Side<B>, dtype: DType) -> FloatTensor<B> {
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
