//! Activations of feed-forward networks, with hand-written backward: y = f(x), dx = g · f′(x).
//!
//! | f | value | slope |
//! |---|---|---|
//! | SiLU | x σ(x) | σ + x σ (1 − σ) |
//! | GELU, tanh formula (`gelu_new`) | x/2 · (1 + tanh u) | (1 + tanh u)/2 + x/2 · (1 − tanh² u) · u′ |
//! | GELU | x Φ(x) | Φ + x exp(−x²/2)/√2π |
//! | ReLU | max(x, 0) | 1 above 0, else 0 |
//!
//! with u = √(2/π) (x + 0.044715 x³) and u′ = √(2/π) (1 + 3 · 0.044715 x²) (Hendrycks and Gimpel 2016). Kept for
//! backward: x.

mod cpu;
pub mod cuda;
mod formula;

use burn::tensor::{Tensor, activation as burn_activation};

pub use cpu_kernels::activation::Activation;
pub use formula::formula;

use super::backend::{cube, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting};
use super::function::custom;
use super::name::OperatorName;
use super::{Operator, narrow, wide};
use crate::ops::activation::cuda as kernels;
use crate::ops::slices;

const SLOPE: f64 = 0.797_884_560_802_865_4; // √(2/π)
const CUBIC: f64 = 0.044_715;

/// y [tokens, intermediate] in x's dtype.
pub fn activate(x: Tensor<2>, activation: Activation, operator: Operator) -> Tensor<2> {
    if operator == Operator::Plain {
        let _scope = OperatorName::Gelu.scope();
        return composed(x, activation);
    }
    custom(OperatorName::Gelu, [x.into_dispatch()], |[x]| {
        let x = Tensor::<2>::from_dispatch(x);
        let y = forward(x.clone(), activation);
        (y, move |g: Tensor<2>, _| [Some(backward(x, g, activation).into_dispatch())])
    })
}

fn forward(x: Tensor<2>, activation: Activation) -> Tensor<2> {
    match on_cuda(&x) {
        true => uncube(kernels::activate(cube(x), activation)),
        false if slices::takes(&x) => cpu::activate(x, activation),
        false => composed(x, activation),
    }
}

/// y by Burn's operators.
pub fn composed(x: Tensor<2>, activation: Activation) -> Tensor<2> {
    let dtype = x.dtype();
    let x = wide(x);
    let y = match activation {
        Activation::Silu => burn_activation::silu(x),
        Activation::GeluTanh => (inner(x.clone()).tanh() + 1.0) * x * 0.5,
        Activation::Gelu => twice_normal(x.clone()) * x * 0.5,
        Activation::Relu => burn_activation::relu(x),
    };
    narrow(y, dtype)
}

/// u of the tanh formula.
fn inner(x: Tensor<2>) -> Tensor<2> {
    let cube = x.clone().square() * x.clone();
    (cube * CUBIC + x) * SLOPE
}

/// 2 Φ(x)
fn twice_normal(x: Tensor<2>) -> Tensor<2> {
    (x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0
}

fn backward(x: Tensor<2>, g: Tensor<2>, activation: Activation) -> Tensor<2> {
    if on_cuda(&x) {
        return uncube(kernels::activate_backward(&cube(x), cube(g), activation));
    }
    if slices::takes(&x) && slices::takes(&g) {
        return cpu::activate_backward(x, g, activation);
    }
    let dtype = x.dtype();
    narrow(twice_slope(wide(x), activation) * wide(g) * 0.5, dtype)
}

/// 2 f′(x)
fn twice_slope(x: Tensor<2>, activation: Activation) -> Tensor<2> {
    match activation {
        Activation::Silu => {
            let sigma = burn_activation::sigmoid(x.clone());
            ((sigma.clone() * -1.0 + 1.0) * x + 1.0) * sigma * 2.0
        }
        Activation::GeluTanh => {
            let tanh = inner(x.clone()).tanh();
            let slope = (x.clone().square() * (3.0 * CUBIC) + 1.0) * SLOPE;
            let rest = (tanh.clone().square() * -1.0 + 1.0) * slope * x;
            tanh + 1.0 + rest
        }
        Activation::Gelu => twice_normal(x.clone()) + (x.clone().square() * -0.5).exp() * x * SLOPE,
        Activation::Relu => x.zeros_like().mask_fill(x.greater_elem(0.0), 2.0),
    }
}

/// x [tokens, columns] is kept, and dx takes the place of g. In fewer bits the CPU computes in fp32: GELU's tanh, in
/// backward also the slope and a square.
pub fn cost(setting: &Setting, activation: Activation, columns: u64) -> Cost {
    let (x, wide) = (setting.activation(columns), setting.wide(columns));
    let widened = if setting.element() < 4 { wide } else { 0 };
    let (forward, kept, backward) = match (setting.ops.gelu, setting.has_kernels()) {
        (Operator::Custom, true) => (x, 0, 0),
        // Where x is widened it is free before the highest moment.
        (Operator::Custom, false) => (wide + widened, 0, if widened > 0 { 4 * wide - x } else { 3 * wide }),
        (Operator::Plain, _) => {
            let kept = kept_by_burn(activation) * wide;
            (kept + 2 * wide, kept, kept + 3 * wide)
        }
    };
    let holds_input = setting.ops.gelu == Operator::Custom;
    let moments = Cost::new(Moment::workspace(forward), Moment::workspace(backward));
    let launches = if holds_input { [1, 1] } else { [8, 12] };
    Cost { input: x, output: x, holds_input, kept, launches, ..moments }.named(OperatorName::Gelu, setting)
}

/// Tensors that Burn's autodiff keeps.
pub fn kept_by_burn(activation: Activation) -> u64 {
    match activation {
        // x, x², tanh and tanh + 1.
        Activation::GeluTanh => 4,
        // x, x/√2 and erf + 1.
        Activation::Gelu => 3,
        // x and σ.
        Activation::Silu => 2,
        // y.
        Activation::Relu => 1,
    }
}
