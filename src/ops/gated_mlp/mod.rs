//! The gated feed-forward operator, FFN(x) = (f(xW) ⊙ xV)U, with hand-written backward at three checkpoint levels
//! (Shazeer 2020, "GLU Variants Improve Transformer"): SwiGLU where the activation f is SiLU, GeGLU where it is GELU.
//!
//! With a = xW, b = xV, s = f(a), h = s ⊙ b, y = hU, and g the gradient of the loss with respect to y, the chain rule
//! gives, from the output inwards:
//!
//! ```text
//! y = hU              dU = hᵀ g                    dh = g Uᵀ
//! h = s ⊙ b           db = dh ⊙ s                  ds = dh ⊙ b
//! s = f(a)            da = ds ⊙ f′(a)      of SiLU f′ = σ(1 + a(1 − σ)), since σ′ = σ(1 − σ)
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
//!
//! Levels 0 and 0.5 keep x for dW and dV: where W and V are frozen, they keep none.

mod cost;
mod formula;
mod gate;
mod gate_cpu;
mod gate_cuda;
mod gated;

use burn::tensor::Tensor;

pub use cost::cost;
pub use gated::{gated, gated_columns, gated_columns_cost, gated_cost};

use super::activation::{Activation, composed};
use super::dense::{Arithmetic, Weight, WeightLayout};
use super::function::{Earlier, custom_adding};
use super::name::OperatorName;
use super::product::composed_product;
use super::{Level, Operator, narrow, rounded};
use formula::Call;

/// How a gated MLP computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedMlp {
    pub activation: Activation,
    /// How each weight lies in memory.
    pub layout: WeightLayout,
    pub level: Level,
    /// Its type is that of the result, but in an autocast region.
    pub arithmetic: Arithmetic,
}

impl GatedMlp {
    /// With SiLU.
    pub fn swiglu(layout: WeightLayout, level: Level, arithmetic: Arithmetic) -> Self {
        Self { activation: Activation::Silu, layout, level, arithmetic }
    }

    /// y = (f(xW) ⊙ xV)U in the compute type, that of the autocast region around the call or else that of the arithmetic.
    ///
    /// # Panics
    /// When the three weights do not share one dtype.
    pub fn forward<W: Into<Weight>>(self, x: Tensor<2>, weights: [W; 3], operator: Operator) -> Tensor<2> {
        let weights = weights.map(W::into);
        if operator == Operator::Custom {
            return self.forward_onto(x, weights, None);
        }
        check(&weights);
        let arithmetic = self.arithmetic.in_region();
        let _scope = OperatorName::Swiglu.scope();
        let [w, v, u] = weights.map(|weight| {
            let weight = narrow(weight.stored, arithmetic.dtype);
            if self.layout == WeightLayout::OutIn { weight.transpose() } else { weight }
        });
        let x = narrow(x, arithmetic.dtype);
        let product = |lhs, rhs| composed_product(OperatorName::Swiglu, lhs, rhs, arithmetic.math);
        let gate = match self.activation {
            Activation::Silu => burn::tensor::activation::silu(product(x.clone(), w)),
            activation => composed(product(x.clone(), w), activation),
        };
        product(gate * product(x, v), u)
    }

    /// As [`forward`](Self::forward) with the custom operator, with the result added to a tensor of its shape and type
    /// outside of the graph, by the product with U.
    pub fn forward_onto(self, x: Tensor<2>, weights: [Weight; 3], onto: Option<Tensor<2>>) -> Tensor<2> {
        check(&weights);
        let [w, v, u] = weights;
        let form = Self { arithmetic: self.arithmetic.in_region(), ..self };
        let mut casts = [w.cast, v.cast, u.cast].into_iter();
        let inputs = [x, w.stored, v.stored, u.stored].map(Tensor::into_dispatch);
        custom_adding(OperatorName::Swiglu, inputs, |inputs, tracked| {
            let [x, w, v, u] = inputs.map(Tensor::<2>::from_dispatch);
            let (x_dtype, weight_dtype, dtype) = (x.dtype(), w.dtype(), form.arithmetic.dtype);
            let weights = [w, v, u].map(|stored| Weight::new(stored, casts.next().flatten()).narrow(dtype));
            // Without a backward nothing is kept.
            let level = if tracked.contains(&true) { form.level } else { Level::Full };
            let (y, call) = Call::forward(rounded(x, dtype), weights, Self { level, ..form }, onto);
            let call = if tracked[1] || tracked[2] { call } else { call.without_x() };
            (y, move |g: Tensor<2>, wanted, _: &mut Earlier<'_>| {
                let [dx, dw, dv, du] = call.backward(rounded(g, dtype), wanted, weight_dtype);
                [dx.map(|dx| rounded(dx, x_dtype)), dw, dv, du]
                    .map(|gradient| gradient.map(Tensor::into_dispatch))
            })
        })
    }
}

fn check([w, v, u]: &[Weight; 3]) {
    for (name, t) in [("V", v), ("U", u)] {
        assert_eq!(t.stored.dtype(), w.stored.dtype(), "gated MLP: {name} must have the dtype of W");
    }
}

#[cfg(test)]
mod tests;
