//! SwiGLU on CUDA: matrix products through cuBLASLt that read transposes in place, and one kernel
//! each way for the rest.
//!
//! Backward holds three [N, I] buffers at its highest: a, b and dh become da, db and h where they
//! lie, and each is freed after its last product.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::formula::{Formula, Inputs, Kept, Wanted};
use super::kernels;
use crate::ops::Level;
use crate::ops::linear::{Fp32Math, Matmul, plain, transpose};

type B = CubeBackend;

impl Formula for CubeBackend {
    fn forward(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        v: FloatTensor<Self>,
        u: FloatTensor<Self>,
        level: Level,
        math: Fp32Math,
    ) -> (FloatTensor<Self>, Kept<Self>) {
        let (a, b) = up(&x, w, v, math);
        let (kept, h) = match level {
            Level::Keep => {
                let (s, h) = kernels::forward_keeping_silu(&a, &b);
                (Kept::All { a, s, b }, h)
            }
            Level::Elementwise => {
                let h = kernels::forward(a.clone(), &b);
                (Kept::Matmuls { a, b }, h)
            }
            Level::Full => (Kept::Nothing, kernels::forward(a, &b)),
        };
        let dtype = x.dtype;
        (B::matmul(plain(h), plain(u), dtype, math), kept)
    }

    fn backward(inputs: Inputs<Self>, wanted: Wanted, math: Fp32Math) -> [Option<FloatTensor<Self>>; 4] {
        let Inputs { x, w, v, u, kept, g } = inputs;
        let [want_x, want_w, want_v, want_u] = wanted;
        let dtype = x.dtype;
        let (a, b) = match kept {
            // Making s again from a, which is read anyway, is cheaper than reading it.
            Kept::All { a, s, b } => {
                drop(s);
                (a, b)
            }
            Kept::Matmuls { a, b } => (a, b),
            Kept::Nothing => up(&x, w.clone(), v.clone(), math),
        };
        let dh = B::matmul(plain(g.clone()), transpose(u), dtype, math);
        let (da, db, h) = kernels::backward(a, b, dh);
        let du = want_u.then(|| B::matmul(transpose(h.clone()), plain(g), dtype, math));
        drop(h);
        let dv = want_v.then(|| B::matmul(transpose(x.clone()), plain(db.clone()), dtype, math));
        let dx = want_x.then(|| B::matmul(plain(db.clone()), transpose(v), dtype, math));
        drop(db);
        let dw = want_w.then(|| B::matmul(transpose(x), plain(da.clone()), dtype, math));
        let dx = dx.map(|dx| B::matmul_add(dx, plain(da), transpose(w), math));
        [dx, dw, dv, du]
    }
}

/// a = xW and b = xV.
fn up(x: &CubeTensor, w: CubeTensor, v: CubeTensor, math: Fp32Math) -> (CubeTensor, CubeTensor) {
    let product = |weight| B::matmul(plain(x.clone()), plain(weight), x.dtype, math);
    (product(w), product(v))
}
