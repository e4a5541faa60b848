//! The residual sum x + y in x's type, whatever type y has: under autocast x, the residual stream, is fp32 and y
//! is not. It is a kernel of its own, or part of the product that makes y. Nothing is kept for backward.

use burn::tensor::{DType, Tensor};

use super::backend::{cube, has_blas, on_cuda, outside, uncube};
use super::function::custom;
use super::kernels::elementwise::add;
use super::name::OperatorName;
use super::{narrow, rounded};
use crate::ops::slices;

/// x + y, [tokens, hidden] each, in x's type.
pub fn residual(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    custom(OperatorName::Residual, [x.into_dispatch(), y.into_dispatch()], |[x, y]| {
        let (x, y) = (Tensor::<2>::from_dispatch(x), Tensor::<2>::from_dispatch(y));
        let y_dtype = y.dtype();
        (sum(x, y), move |g: Tensor<2>, [want_x, want_y]| {
            [want_x.then(|| g.clone().into_dispatch()), want_y.then(|| rounded(g, y_dtype).into_dispatch())]
        })
    })
}

/// x + f(x) as [`residual`] has it, where `layer` computes f in `dtype` and adds its result to the tensor that it is given,
/// if any: x outside of the graph, where cuBLASLt can add x in the layer's last product. This saves a launch, and writing
/// and reading f(x); and it rounds once where a sum of its own rounds twice.
pub fn residual_in_product(
    x: Tensor<2>,
    dtype: DType,
    layer: impl FnOnce(Option<Tensor<2>>) -> Tensor<2>,
) -> Tensor<2> {
    if x.dtype() != dtype || !has_blas(&x) {
        return residual(x, layer(None));
    }
    let sum = layer(Some(outside(x.clone())));
    custom(OperatorName::Residual, [x.into_dispatch(), sum.into_dispatch()], |[_, sum]| {
        (Tensor::from_dispatch(sum), |g: Tensor<2>, [want_x, want_sum]: [bool; 2]| {
            [want_x.then(|| g.clone().into_dispatch()), want_sum.then(|| g.into_dispatch())]
        })
    })
}

fn sum(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    if on_cuda(&x) {
        return uncube(add(cube(x), &cube(y)));
    }
    if slices::takes(&x) && slices::takes(&y) {
        return slices::add(x, y);
    }
    let dtype = x.dtype();
    x + narrow(y, dtype)
}
