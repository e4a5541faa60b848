//! The SwiGLU feed-forward operator, FFN(x) = (SiLU(xW) ⊙ xV)U, with hand-written backward at
//! three checkpoint levels (Shazeer 2020, "GLU Variants Improve Transformer").
//!
//! With a = xW, b = xV, σ the logistic function, s = SiLU(a) = a ⊙ σ(a), h = s ⊙ b, y = hU, and g
//! the gradient of the loss with respect to y, the chain rule gives, from the output inwards:
//!
//! ```text
//! y = hU              dU = hᵀ g                    dh = g Uᵀ
//! h = s ⊙ b           db = dh ⊙ s                  ds = dh ⊙ b
//! s = a ⊙ σ(a)        da = ds ⊙ σ(a)(1 + a(1 − σ(a)))      since σ' = σ(1 − σ)
//! a = xW, b = xV      dW = xᵀ da,  dV = xᵀ db      dx = da Wᵀ + db Vᵀ
//! ```
//!
//! Shapes: x [N, H], W and V [H, I], U [I, H], y [N, H], for N tokens, hidden size H and
//! intermediate size I.
//!
//! | level | kept besides the weights | elements | recomputed in backward |
//! |---|---|---|---|
//! | 0   | x, a, s, b | N(H + 3I) | h |
//! | 0.5 | x, a, b    | N(H + 2I) | s, h |
//! | 1   | x          | NH        | a, b (two matmuls), s, h |

mod cost;
mod formula;
mod gate;
mod gate_cpu;
mod gate_cuda;

use burn::backend::Flex;
use burn::tensor::{Tensor, activation};
use burn_cubecl::CubeBackend;

pub use cost::cost;

use self::gate::Gate;
use super::backend::{Computes, on_cuda};
use super::dense::{Arithmetic, Weight, WeightLayout};
use super::function::{InputGradients, custom};
use super::linear::Matmul;

use super::product::composed_product;
use super::{Level, Operator, narrow, rounded};

/// y = (SiLU(xW) ⊙ xV)U in the compute type, that of the autocast region around the call or else that of
/// `arithmetic`; each weight lies as `layout` says.
///
/// # Panics
/// When the three weights do not share one dtype.
#[expect(clippy::too_many_arguments, reason = "x, three weights, and how to compute")]
pub fn swiglu(
    x: Tensor<2>,
    w: impl Into<Weight>,
    v: impl Into<Weight>,
    u: impl Into<Weight>,
    layout: WeightLayout,
    level: Level,
    operator: Operator,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let (w, v, u): (Weight, Weight, Weight) = (w.into(), v.into(), u.into());
    let arithmetic = arithmetic.in_region();
    for (name, t) in [("V", &v), ("U", &u)] {
        assert_eq!(t.stored.dtype(), w.stored.dtype(), "swiglu: {name} must have the dtype of W");
    }
    if operator == Operator::Plain {
        let weight = |t: Weight| {
            let t = narrow(t.stored, arithmetic.dtype);
            if layout == WeightLayout::OutIn { t.transpose() } else { t }
        };
        let x = narrow(x, arithmetic.dtype);
        let product = |lhs, rhs| composed_product(lhs, rhs, arithmetic.math);
        let gate = activation::silu(product(x.clone(), weight(w)));
        return product(gate * product(x, weight(v)), weight(u));
    }
    let casts = [w.cast, v.cast, u.cast];
    custom([x, w.stored, v.stored, u.stored].map(Tensor::into_dispatch), |inputs| {
        let inputs = inputs.map(Tensor::<2>::from_dispatch);
        if on_cuda(&inputs[0]) {
            on::<CubeBackend>(inputs, casts, layout, level, arithmetic)
        } else {
            on::<Flex>(inputs, casts, layout, level, arithmetic)
        }
    })
}

type BackwardCall = Box<dyn FnOnce(Tensor<2>, [bool; 4]) -> InputGradients<4> + Send>;

fn on<B: Computes + Gate + Matmul>(
    inputs: [Tensor<2>; 4],
    casts: [Option<Tensor<2>>; 3],
    layout: WeightLayout,
    level: Level,
    arithmetic: Arithmetic,
) -> (Tensor<2>, BackwardCall) {
    let [x_dtype, weight_dtype, ..] = inputs.each_ref().map(|t| t.dtype());
    let [x, w, v, u] = inputs;
    let x = B::lower::<2>(rounded(x, arithmetic.dtype));
    let mut casts = casts.into_iter();
    let [w, v, u] = [w, v, u].map(|stored| {
        let weight = Weight { stored, cast: casts.next().flatten() };
        B::lower::<2>(weight.narrow(arithmetic.dtype))
    });
    let (y, kept) =
        formula::forward::<B>(x.clone(), w.clone(), v.clone(), u.clone(), layout, level, arithmetic);
    let backward = move |g: Tensor<2>, wanted: [bool; 4]| {
        let g = B::lower::<2>(rounded(g, arithmetic.dtype));
        let inputs = formula::Inputs { x, w, v, u, kept, g };
        let gradients = formula::backward::<B>(inputs, wanted, weight_dtype, layout, arithmetic);
        let [dx, dw, dv, du] = gradients.map(|gradient| gradient.map(B::lift::<2>));
        [dx.map(|dx| rounded(dx, x_dtype)), dw, dv, du].map(|gradient| gradient.map(Tensor::into_dispatch))
    };
    (B::lift::<2>(y), Box::new(backward))
}

#[cfg(test)]
mod tests;
