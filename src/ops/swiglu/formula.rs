//! The arithmetic of SwiGLU forward and backward: what a backend provides, and the formula in
//! Burn's operators for the CPU, with temporaries freed as early as it allows. Names follow the
//! derivation in the parent module.

use burn::backend::{Backend, Flex, tensor::FloatTensor};

use crate::ops::Level;
use crate::ops::linear::Fp32Math;

/// Backends with their own way through the formula.
pub trait Formula: Backend {
    /// y and what `level` keeps.
    fn forward(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        level: Level,
        math: Fp32Math,
    ) -> (FloatTensor<Self>, Kept<Self>);

    /// dx, dW, dV, dU; `None` where not wanted.
    fn backward(inputs: Inputs<Self>, wanted: Wanted, math: Fp32Math) -> [Option<FloatTensor<Self>>; 4];
}

/// The CPU multiplies fp32 exactly whatever `math` says.
impl Formula for Flex {
    fn forward(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        level: Level,
        _math: Fp32Math,
    ) -> (FloatTensor<Self>, Kept<Self>) {
        forward(x, w, v, u, level)
    }

    fn backward(inputs: Inputs<Self>, wanted: Wanted, _math: Fp32Math) -> [Option<FloatTensor<Self>>; 4] {
        backward(inputs, wanted)
    }
}

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

fn forward<B: Backend>(
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
            let s = silu::<B>(a.clone());
            let h = B::float_mul(s.clone(), b.clone());
            (Kept::All { a, s, b }, h)
        }
        Level::Elementwise => {
            let h = B::float_mul(silu::<B>(a.clone()), b.clone());
            (Kept::Matmuls { a, b }, h)
        }
        Level::Full => (Kept::Nothing, B::float_mul(silu::<B>(a), b)),
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

fn backward<B: Backend>(inputs: Inputs<B>, wanted: Wanted) -> [Option<FloatTensor<B>>; 4] {
    let Inputs { x, w, v, u, kept, g } = inputs;
    let [want_x, want_w, want_v, want_u] = wanted;
    let (a, s, b) = match kept {
        Kept::All { a, s, b } => (a, s, b),
        Kept::Matmuls { a, b } => (a.clone(), silu::<B>(a), b),
        Kept::Nothing => {
            let a = B::float_matmul(x.clone(), w.clone());
            let b = B::float_matmul(x.clone(), v.clone());
            (a.clone(), silu::<B>(a), b)
        }
    };

    let du = want_u.then(|| {
        let h = B::float_mul(s.clone(), b.clone());
        B::float_matmul(B::float_transpose(h), g.clone())
    });
    let dh = B::float_matmul(g, B::float_transpose(u));
    let db = B::float_mul(s, dh.clone());
    let dv = want_v.then(|| B::float_matmul(B::float_transpose(x.clone()), db.clone()));
    // dx starts with its part through b, so that db is freed before da exists.
    let dx_b = if want_x { Some(B::float_matmul(db, B::float_transpose(v))) } else { None };
    let ds = B::float_mul(dh, b);
    let da = B::float_mul(silu_derivative::<B>(a), ds);
    let dw = want_w.then(|| B::float_matmul(B::float_transpose(x), da.clone()));
    let dx = dx_b.map(|part| B::float_add(part, B::float_matmul(da, B::float_transpose(w))));
    [dx, dw, dv, du]
}

/// a ⊙ σ(a)
fn silu<B: Backend>(a: FloatTensor<B>) -> FloatTensor<B> {
    let sigma = B::sigmoid(a.clone());
    B::float_mul(sigma, a)
}

/// σ(a)(1 + a(1 − σ(a)))
fn silu_derivative<B: Backend>(a: FloatTensor<B>) -> FloatTensor<B> {
    let sigma = B::sigmoid(a.clone());
    let rest = B::float_add_scalar(B::float_neg(sigma.clone()), 1.0.into());
    let inner = B::float_add_scalar(B::float_mul(rest, a), 1.0.into());
    B::float_mul(inner, sigma)
}
