//! Products with a bias: in the product's own kernel where cuBLASLt has one for the types, else by a second product
//! with a vector of ones, which rounds the sum again.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::ones_client;
use burn_cubecl::tensor::CubeTensor;

use super::view::{Matrix, View};
use super::{Output, Product};
use crate::device::cuda::blas::{Epilogue, Fp32Math};

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
        onto: None,
        math: Fp32Math::Exact,
        accumulate: true,
    };
    bias.issue();
    bias.out.tensor
}

/// [length], where `like` is.
fn ones(like: &CubeTensor, length: usize, dtype: DType) -> CubeTensor {
    ones_client(like.client.clone(), like.device.clone(), Shape::from([length]), dtype)
}
