//! SwiGLU forward and backward on any backend, with temporaries freed as early as the formula
//! allows. Names follow the derivation in the parent module.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};

use super::gate::{Gate, GateGradients};
use crate::ops::Level;
use crate::ops::linear::{Fp32Math, Matmul, plain, transpose};

/// What forward leaves for backward besides x.
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
    level: Level,
    math: Fp32Math,
) -> (FloatTensor<B>, Kept<B>) {
    let dtype = x.dtype();
    let a = B::matmul(plain(x.clone()), plain(w), dtype, math);
    let b = B::matmul(plain(x), plain(v), dtype, math);
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
    (B::matmul(plain(h), plain(u), dtype, math), kept)
}

/// The tensors of one backward call.
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

/// dx, dW, dV, dU; `None` where not wanted.
pub fn backward<B: Gate + Matmul>(
    inputs: Inputs<B>,
    wanted: Wanted,
    math: Fp32Math,
) -> [Option<FloatTensor<B>>; 4] {
    let Inputs { x, w, v, u, kept, g } = inputs;
    let [want_x, want_w, want_v, want_u] = wanted;
    let dtype = x.dtype();
    let product = |lhs, rhs| B::matmul(lhs, rhs, dtype, math);
    let (a, s, b) = match kept {
        Kept::All { a, s, b } => (a, Some(s), b),
        Kept::Matmuls { a, b } => (a, None, b),
        Kept::Nothing => {
            let a = product(plain(x.clone()), plain(w.clone()));
            (a, None, product(plain(x.clone()), plain(v.clone())))
        }
    };
    let dh = product(plain(g.clone()), transpose(u));
    let GateGradients { da, db, h } = B::gate_backward(a, s, b, dh);

    let du = want_u.then(|| product(transpose(h), plain(g)));
    let dv = want_v.then(|| product(transpose(x.clone()), plain(db.clone())));
    // dx through b first, so that db is freed before the product with da exists.
    let dx_b = want_x.then(|| product(plain(db), transpose(v)));
    let dw = want_w.then(|| product(transpose(x), plain(da.clone())));
    let dx = dx_b.map(|dx_b| B::matmul_add(dx_b, plain(da), transpose(w), math));
    [dx, dw, dv, du]
}
