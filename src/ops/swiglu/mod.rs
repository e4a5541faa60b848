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

mod backward;
mod formula;
mod gate;
mod gate_cpu;
mod gate_cuda;
pub mod memory;

use burn::backend::{Backend, Flex};
use burn::backend::{Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{Tensor, activation};
use burn_cubecl::CubeBackend as Cube;

use super::linear::Fp32Math;
use super::{Level, Operator};

/// Backends that can run the operator.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait SwigluBackend: Backend {
    /// An extension takes plain values only: `level` is [`Level::number`] doubled, `tf32` stands
    /// for [`Fp32Math::Tf32`].
    fn swiglu(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        level: u32,
        tf32: bool,
    ) -> FloatTensor<Self>;
}

fn level_of(doubled: u32) -> Level {
    Level::from_number(f64::from(doubled) / 2.0).expect("made from a Level")
}

fn math_of(tf32: bool) -> Fp32Math {
    if tf32 { Fp32Math::Tf32 } else { Fp32Math::Exact }
}

// Without autodiff there is no backward to keep anything for.
impl SwigluBackend for Flex {
    fn swiglu(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        _level: u32,
        tf32: bool,
    ) -> FloatTensor<Self> {
        formula::forward::<Self>(x, w, v, u, Level::Full, math_of(tf32)).0
    }
}

impl SwigluBackend for Cube {
    fn swiglu(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        _level: u32,
        tf32: bool,
    ) -> FloatTensor<Self> {
        formula::forward::<Self>(x, w, v, u, Level::Full, math_of(tf32)).0
    }
}

/// y = (SiLU(xW) ⊙ xV)U. `math` is how fp32 tensors are multiplied on CUDA; it does not reach
/// [`Operator::Plain`], whose fp32 products Burn computes in TF32 there.
///
/// # Panics
/// When the four tensors do not share one dtype: Burn would compute garbage on CUDA.
pub fn swiglu(
    x: Tensor<2>,
    w: Tensor<2>,
    v: Tensor<2>,
    u: Tensor<2>,
    level: Level,
    operator: Operator,
    math: Fp32Math,
) -> Tensor<2> {
    let dtype = x.dtype();
    for (name, t) in [("W", &w), ("V", &v), ("U", &u)] {
        assert_eq!(t.dtype(), dtype, "swiglu: {name} must have the dtype of x");
    }
    match operator {
        Operator::Plain => (activation::silu(x.clone().matmul(w)) * x.matmul(v)).matmul(u),
        Operator::Custom => Tensor::from_dispatch(<Dispatch as SwigluBackend>::swiglu(
            x.into_dispatch(),
            w.into_dispatch(),
            v.into_dispatch(),
            u.into_dispatch(),
            (level.number() * 2.0) as u32,
            math == Fp32Math::Tf32,
        )),
    }
}

#[cfg(test)]
mod tests;
