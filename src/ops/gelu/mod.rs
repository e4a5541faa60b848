//! GELU by the tanh formula (Hendrycks and Gimpel 2016), `gelu_new` of GPT-2, with hand-written
//! backward.
//!
//! ```text
//! u = √(2/π) (x + 0.044715 x³)      y = x/2 · (1 + tanh u)
//! dy/dx = (1 + tanh u)/2 + x/2 · (1 − tanh² u) · √(2/π) (1 + 3 · 0.044715 x²)
//! ```
//!
//! Kept for backward: x.

mod cpu;
pub mod cuda;

use burn::tensor::Tensor;

use super::backend::{cube, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting};
use super::function::custom;
use super::name::OperatorName;
use super::{Operator, narrow, wide};
use crate::ops::gelu::cuda as kernels;
use crate::ops::slices;

const SLOPE: f64 = 0.797_884_560_802_865_4; // √(2/π)
const CUBIC: f64 = 0.044_715;

/// y [tokens, intermediate] in x's dtype.
pub fn gelu(x: Tensor<2>, operator: Operator) -> Tensor<2> {
    if operator == Operator::Plain {
        let _scope = OperatorName::Gelu.scope();
        return formula(x);
    }
    custom(OperatorName::Gelu, [x.into_dispatch()], |[x]| {
        let x = Tensor::<2>::from_dispatch(x);
        (forward(x.clone()), move |g: Tensor<2>, _| [Some(backward(x, g).into_dispatch())])
    })
}

fn forward(x: Tensor<2>) -> Tensor<2> {
    match on_cuda(&x) {
        true => uncube(kernels::gelu(cube(x))),
        false if slices::takes(&x) => cpu::gelu(x),
        false => formula(x),
    }
}

fn formula(x: Tensor<2>) -> Tensor<2> {
    let dtype = x.dtype();
    let x = wide(x);
    let tanh = inner(x.clone()).tanh();
    narrow((tanh + 1.0) * x * 0.5, dtype)
}

fn inner(x: Tensor<2>) -> Tensor<2> {
    let cube = x.clone().square() * x.clone();
    (cube * CUBIC + x) * SLOPE
}

fn backward(x: Tensor<2>, g: Tensor<2>) -> Tensor<2> {
    if on_cuda(&x) {
        return uncube(kernels::gelu_backward(&cube(x), cube(g)));
    }
    if slices::takes(&x) && slices::takes(&g) {
        return cpu::gelu_backward(x, g);
    }
    let dtype = x.dtype();
    let x = wide(x);
    let tanh = inner(x.clone()).tanh();
    let slope = (x.clone().square() * (3.0 * CUBIC) + 1.0) * SLOPE;
    let rest = (tanh.clone().square() * -1.0 + 1.0) * slope * x;
    narrow((tanh + 1.0 + rest) * wide(g) * 0.5, dtype)
}

/// x [tokens, columns] is kept, and dx takes the place of g. In fewer bits the CPU computes in fp32: tanh, in backward
/// also the slope and a square. Burn's autodiff keeps x, x², tanh and tanh + 1 in fp32.
pub fn cost(setting: &Setting, columns: u64) -> Cost {
    let (x, wide) = (setting.activation(columns), setting.wide(columns));
    let widened = if setting.element() < 4 { wide } else { 0 };
    let (forward, kept, backward) = match (setting.ops.gelu, setting.has_kernels()) {
        (Operator::Custom, true) => (x, 0, 0),
        // Where x is widened it is free before the highest moment.
        (Operator::Custom, false) => (wide + widened, 0, if widened > 0 { 4 * wide - x } else { 3 * wide }),
        (Operator::Plain, _) => (6 * wide, 4 * wide, 7 * wide),
    };
    let holds_input = setting.ops.gelu == Operator::Custom;
    let moments = Cost::new(Moment::workspace(forward), Moment::workspace(backward));
    let launches = if holds_input { [1, 1] } else { [8, 12] };
    Cost { input: x, output: x, holds_input, kept, launches, ..moments }.named(OperatorName::Gelu, setting)
}
