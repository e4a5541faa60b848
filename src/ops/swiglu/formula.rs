//! SwiGLU forward and backward on any backend, with temporaries freed as early as the formula
//! allows. Names follow the derivation in the parent module.

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::DType;

use super::gate::{Gate, GateGradients};
use crate::ops::Level;
use crate::ops::dense::{Arithmetic, WeightLayout};
use crate::ops::linear::{Matmul, Side, plain, transpose};

/// What forward keeps for backward besides x.
#[derive(Clone, Debug)]
pub enum Kept<B: Backend> {
    /// Level 0: a, s, b.
    All { a: FloatTensor<B>, s: FloatTensor<B>, b: FloatTensor<B> },
    /// Level 0.5: a, b.
    Matmuls { a: FloatTensor<B>, b: FloatTensor<B> },
    /// Level 1.
    Nothing,
}

/// y and what `level` keeps.
pub fn forward<B: Gate + Matmul>(
    x: FloatTensor<B>,
    w: FloatTensor<B>,
    v: FloatTensor<B>,
    u: FloatTensor<B>,
    layout: WeightLayout,
    level: Level,
    Arithmetic { dtype, math }: Arithmetic,
) -> (FloatTensor<B>, Kept<B>) {
    let a = B::matmul(plain(x.clone()), layout.weight(w), dtype, math);
    let b = B::matmul(plain(x), layout.weight(v), dtype, math);
    let (kept, h) = match level {
        Level::Keep => {
            let (s, h) = B::silu_and_gate(a.clone(), b.clone());
            (Kept::All { a, s, b }, h)
        }
        Level::Elementwise => {
            let h = B::gate(a.clone(), b.clone());
            (Kept::Matmuls { a, b }, h)
        }
        Level::Full => (Kept::Nothing, B::gate(a, b)),
    };
    (B::matmul(plain(h), layout.weight(u), dtype, math), kept)
}

impl WeightLayout {
    /// The matrix that x is multiplied by.
    fn weight<B: Backend>(self, tensor: FloatTensor<B>) -> Side<B> {
        match self {
            Self::InOut => plain(tensor),
            Self::OutIn => transpose(tensor),
        }
    }

    /// Its transpose.
    fn transposed<B: Backend>(self, tensor: FloatTensor<B>) -> Side<B> {
        match self {
            Self::InOut => transpose(tensor),
            Self::OutIn => plain(tensor),
        }
    }

    /// The factors of the weight's gradient, xᵀg as it lies in memory.
    fn gradient<B: Backend>(self, x: FloatTensor<B>, g: FloatTensor<B>) -> (Side<B>, Side<B>) {
        match self {
            Self::InOut => (transpose(x), plain(g)),
            Self::OutIn => (transpose(g), plain(x)),
        }
    }
}

/// The tensors of one backward call, in the compute type.
pub struct Inputs<B: Backend> {
    pub x: FloatTensor<B>,
    pub w: FloatTensor<B>,
    pub v: FloatTensor<B>,
    pub u: FloatTensor<B>,
    pub kept: Kept<B>,
    /// Gradient of the loss with respect to y.
    pub g: FloatTensor<B>,
}

/// Which gradients are wanted: `[x, w, v, u]`. A frozen weight costs no matmul.
pub type Wanted = [bool; 4];

/// dx in the compute type; dW, dV, dU in the weights' type; `None` where not wanted.
pub fn backward<B: Gate + Matmul>(
    inputs: Inputs<B>,
    wanted: Wanted,
    weight_dtype: DType,
    layout: WeightLayout,
    Arithmetic { dtype, math }: Arithmetic,
) -> [Option<FloatTensor<B>>; 4] {
    let Inputs { x, w, v, u, kept, g } = inputs;
    let [want_x, want_w, want_v, want_u] = wanted;
    let product = |lhs, rhs| B::matmul(lhs, rhs, dtype, math);
    let (a, s, b) = match kept {
        Kept::All { a, s, b } => (a, Some(s), b),
        Kept::Matmuls { a, b } => (a, None, b),
        Kept::Nothing => {
            let a = product(plain(x.clone()), layout.weight(w.clone()));
            (a, None, product(plain(x.clone()), layout.weight(v.clone())))
        }
    };
    let dh = product(plain(g.clone()), layout.transposed(u));
    let GateGradients { da, db, h } = B::gate_backward(a, s, b, dh);

    let of_weight = |x, g| {
        let (lhs, rhs) = layout.gradient::<B>(x, g);
        B::matmul(lhs, rhs, weight_dtype, math)
    };
    let du = want_u.then(|| of_weight(h, g));
    let dv = want_v.then(|| of_weight(x.clone(), db.clone()));
    // dx through b first, so that db is freed before the product with da exists.
    let dx_b = want_x.then(|| product(plain(db), layout.transposed(v)));
    let dw = want_w.then(|| of_weight(x, da.clone()));
    let dx = dx_b.map(|dx_b| B::matmul_add(dx_b, plain(da), layout.transposed(w), math));
    [dx, dw, dv, du]
}
