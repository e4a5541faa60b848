//! The residual sum x + y in x's type, whatever type y has: under autocast x, the residual stream, is fp32 and y
//! is not. Nothing is kept for backward.

use burn::tensor::Tensor;

use super::backend::{cube, on_cuda, uncube};
use super::cpu;
use super::function::custom;
use super::kernels::elementwise::add;
use super::name::OperatorName;
use super::{narrow, rounded};

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

fn sum(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    if on_cuda(&x) {
        return uncube(add(cube(x), &cube(y)));
    }
    if cpu::takes(&x) && cpu::takes(&y) {
        return cpu::elementwise::add(x, y);
    }
    let dtype = x.dtype();
    x + narrow(y, dtype)
}
