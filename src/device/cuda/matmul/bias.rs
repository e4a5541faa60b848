//! Products with a bias, and weight gradients with the bias's gradient: in the product's own kernel
//! where cuBLASLt has one for the types, else by a second product with a vector of ones.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, ones_client};
use burn_cubecl::tensor::CubeTensor;

use super::view::{Matrix, View};
use super::{Output, Product};
use crate::device::cuda::blas::{Epilogue, Fp32Math};

/// Which side of a weight gradient's product is the gradient of the layer's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// dW [out, in] = gᵀ · x.
    Lhs,
    /// dW [in, out] = xᵀ · g.
    Rhs,
}

/// [`matmul`](super::matmul) plus `bias` [n], of the output's dtype, in every row of the product.
///
/// # Panics
/// As [`matmul`](super::matmul), and when the bias does not fit.
pub fn matmul_bias(
    lhs: impl Into<View>,
    rhs: impl Into<View>,
    bias: CubeTensor,
    output: Output,
    math: Fp32Math,
) -> CubeTensor {
    let product = Product::new(lhs.into(), rhs.into(), output, math);
    let [rows, columns] = product.out.shape();
    assert_eq!(bias.meta.shape().num_elements(), columns, "matmul: the length of the bias");
    assert_eq!(bias.dtype, product.out.tensor.dtype, "matmul: the bias must have the output's dtype");
    let bias = into_contiguous(bias);
    if product.issue_with(Epilogue::Bias, &bias) {
        return product.out.tensor;
    }
    let ones = ones(&bias, rows, bias.dtype);
    let batch = product.out.place.batch;
    let bias = Product {
        lhs: Matrix::row(ones, rows, batch).transpose(),
        rhs: Matrix::row(bias, columns, batch),
        out: product.out,
        math: Fp32Math::Exact,
        accumulate: true,
    };
    bias.issue();
    bias.out.tensor
}

/// [`matmul`](super::matmul) of a weight gradient, and the bias's gradient: the sums of `of` over the
/// inner dimension, in f32, [m] for the left-hand side and [n] for the right-hand side.
///
/// # Panics
/// As [`matmul`](super::matmul), and for batches.
pub fn matmul_bias_gradient(
    lhs: impl Into<View>,
    rhs: impl Into<View>,
    of: Gradient,
    output: Output,
    math: Fp32Math,
) -> (CubeTensor, CubeTensor) {
    let product = Product::new(lhs.into(), rhs.into(), output, math);
    assert_eq!(product.out.place.batch, 1, "matmul: the gradient of a bias is that of one product");
    let ([rows, columns], [_, inner]) = (product.out.shape(), product.lhs.shape());
    let (length, epilogue) = match of {
        Gradient::Lhs => (rows, Epilogue::LhsSums),
        Gradient::Rhs => (columns, Epilogue::RhsSums),
    };
    let like = &product.lhs.tensor;
    let (client, device) = (like.client.clone(), like.device.clone());
    let sums = empty_device_contiguous_dtype(client, device, Shape::from([length]), DType::F32);
    if product.issue_with(epilogue, &sums) {
        return (product.out.tensor, sums);
    }
    let ones = ones(like, inner, like.dtype);
    let sums = Product {
        lhs: Matrix::row(ones, inner, 1),
        rhs: match of {
            Gradient::Lhs => product.lhs.transpose(),
            Gradient::Rhs => product.rhs,
        },
        out: Matrix::row(sums, length, 1),
        math: Fp32Math::Exact,
        accumulate: false,
    };
    sums.issue();
    (product.out.tensor, sums.out.tensor)
}

/// [length], where `like` is.
fn ones(like: &CubeTensor, length: usize, dtype: DType) -> CubeTensor {
    ones_client(like.client.clone(), like.device.clone(), Shape::from([length]), dtype)
}
