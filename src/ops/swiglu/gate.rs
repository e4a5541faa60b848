//! The element-wise parts of SwiGLU: h = SiLU(a) ⊙ b and its derivatives, composed of backend
//! operators. A backend with something faster overrides them.

use burn::backend::{Backend, tensor::FloatTensor};

/// The element-wise part of backward, each [tokens, intermediate].
pub struct GateGradients<B: Backend> {
    pub da: FloatTensor<B>,
    pub db: FloatTensor<B>,
    /// Recomputed on the way, for dU = hᵀ g.
    pub h: FloatTensor<B>,
}

/// Names follow the derivation in the parent module. Every tensor is [tokens, intermediate].
pub trait Gate: Backend {
    /// s = a ⊙ σ(a)
    fn silu(a: FloatTensor<Self>) -> FloatTensor<Self> {
        let sigma = Self::sigmoid(a.clone());
        Self::float_mul(sigma, a)
    }

    /// h = SiLU(a) ⊙ b
    fn gate(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_mul(Self::silu(a), b)
    }

    /// s and h.
    fn silu_and_gate(a: FloatTensor<Self>, b: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let s = Self::silu(a);
        let h = Self::float_mul(s.clone(), b);
        (s, h)
    }

    /// da, db and h from dh. `s` spares its recomputation when it was kept.
    fn gate_backward(
        a: FloatTensor<Self>,
        s: Option<FloatTensor<Self>>,
        b: FloatTensor<Self>,
        dh: FloatTensor<Self>,
    ) -> GateGradients<Self> {
        let s = s.unwrap_or_else(|| Self::silu(a.clone()));
        let h = Self::float_mul(s.clone(), b.clone());
        let db = Self::float_mul(s, dh.clone());
        let ds = Self::float_mul(dh, b);
        let sigma = Self::sigmoid(a.clone());
        let rest = Self::float_add_scalar(Self::float_neg(sigma.clone()), 1.0.into());
        let slope = Self::float_mul(Self::float_add_scalar(Self::float_mul(rest, a), 1.0.into()), sigma);
        GateGradients { da: Self::float_mul(ds, slope), db, h }
    }
}
