//! SwiGLU forward and backward on any backend, with temporaries freed as early as the formula
//! allows. Names follow the derivation in the parent module.

use burn::backend::{Backend, tensor::FloatTensor};

use super::gate::{Gate, GateGradients};
use crate::ops::Level;

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
pub fn forward<B: Gate>(
    x: FloatTensor<B>,
    w: FloatTensor<B>,
    v: FloatTensor<B>,
    u: FloatTensor<B>,
    level: Level,
) -> (FloatTensor<B>, Kept<B>) {
    let a = B::float_matmul(x.clone(), w);
    let b = B::float_matmul(x, v);
    let (kept, h) = match level {
        Level::Keep => {
            let s = B::silu(a.clone());
            let h = B::float_mul(s.clone(), b.clone());
            (Kept::All { a, s, b }, h)
        }
        Level::Elementwise => {
            let h = B::gate(a.clone(), b.clone());
            (Kept::Matmuls { a, b }, h)
        }
        Level::Full => (Kept::Nothing, B::gate(a, b)),
    };
    (B::float_matmul(h, u), kept)
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
pub fn backward<B: Gate>(inputs: Inputs<B>, wanted: Wanted) -> [Option<FloatTensor<B>>; 4] {
    let Inputs { x, w, v, u, kept, g } = inputs;
    let [want_x, want_w, want_v, want_u] = wanted;
    let (a, s, b) = match kept {
        Kept::All { a, s, b } => (a, Some(s), b),
        Kept::Matmuls { a, b } => (a, None, b),
        Kept::Nothing => (B::float_matmul(x.clone(), w.clone()), None, B::float_matmul(x.clone(), v.clone())),
    };
    let dh = B::float_matmul(g.clone(), B::float_transpose(u));
    let GateGradients { da, db, h } = B::gate_backward(a, s, b, dh);

    let du = want_u.then(|| B::float_matmul(B::float_transpose(h), g));
    let dv = want_v.then(|| B::float_matmul(B::float_transpose(x.clone()), db.clone()));
    // dx through b first, so that db is freed before the product with da exists.
    let dx_b = want_x.then(|| B::float_matmul(db, B::float_transpose(v)));
    let dw = want_w.then(|| B::float_matmul(B::float_transpose(x), da.clone()));
    let dx = dx_b.map(|dx_b| B::float_add(dx_b, B::float_matmul(da, B::float_transpose(w))));
    [dx, dw, dv, du]
}
