//! [`Call`]: SwiGLU forward and backward outside of the graph, with temporaries freed as early as the formula
//! allows. Names follow the derivation in the parent module.

use burn::tensor::{DType, Tensor};

use super::gate::{gate, gate_backward, silu_and_gate};
use crate::ops::Level;
use crate::ops::dense::{Arithmetic, WeightLayout};
use crate::ops::product::{plain, product, product_add};

/// What forward keeps for backward.
pub struct Call {
    x: Tensor<2>,
    /// W, V and U.
    weights: [Tensor<2>; 3],
    kept: Kept,
    layout: WeightLayout,
    arithmetic: Arithmetic,
}

/// What is kept besides x and the weights.
enum Kept {
    /// Level 0.
    All { a: Tensor<2>, s: Tensor<2>, b: Tensor<2> },
    /// Level 0.5.
    Matmuls { a: Tensor<2>, b: Tensor<2> },
    /// Level 1.
    Nothing,
}

impl Call {
    /// y and what `level` keeps, from x and W, V and U in the compute type.
    pub fn forward(
        x: Tensor<2>,
        weights: [Tensor<2>; 3],
        layout: WeightLayout,
        level: Level,
        arithmetic: Arithmetic,
    ) -> (Tensor<2>, Self) {
        let Arithmetic { dtype, math } = arithmetic;
        let times =
            |x: Tensor<2>, weight: &Tensor<2>| product(plain(x), layout.weight(weight.clone()), dtype, math);
        let [w, v, u] = &weights;
        let (a, b) = (times(x.clone(), w), times(x.clone(), v));
        let (kept, h) = match level {
            Level::Keep => {
                let (s, h) = silu_and_gate(a.clone(), b.clone());
                (Kept::All { a, s, b }, h)
            }
            Level::Elementwise => {
                let h = gate(a.clone(), b.clone());
                (Kept::Matmuls { a, b }, h)
            }
            Level::Full => (Kept::Nothing, gate(a, b)),
        };
        let y = times(h, u);
        (y, Self { x, weights, kept, layout, arithmetic })
    }

    /// dx in the compute type; dW, dV, dU as `weight_dtype`; `None` where not wanted: a frozen weight costs no product.
    pub fn backward(
        self,
        g: Tensor<2>,
        [want_x, want_w, want_v, want_u]: [bool; 4],
        weight_dtype: DType,
    ) -> [Option<Tensor<2>>; 4] {
        let Self { x, weights: [w, v, u], kept, layout, arithmetic: Arithmetic { dtype, math } } = self;
        let product_of = |lhs, rhs| product(lhs, rhs, dtype, math);
        let (a, s, b) = match kept {
            Kept::All { a, s, b } => (a, Some(s), b),
            Kept::Matmuls { a, b } => (a, None, b),
            Kept::Nothing => {
                let a = product_of(plain(x.clone()), layout.weight(w.clone()));
                (a, None, product_of(plain(x.clone()), layout.weight(v.clone())))
            }
        };
        let dh = product_of(plain(g.clone()), layout.transposed(u));
        // The graph's node may still hold what was kept: s is freed before a, b and dh are copied.
        drop(s);
        let [da, db, h] = gate_backward(a, b, dh);

        let of_weight = |x, g| {
            let (lhs, rhs, _) = layout.gradient(x, g);
            product(lhs, rhs, weight_dtype, math)
        };
        let du = want_u.then(|| of_weight(h, g));
        let dv = want_v.then(|| of_weight(x.clone(), db.clone()));
        // dx through b first, so that db is freed before the product with da exists.
        let dx_b = want_x.then(|| product_of(plain(db), layout.transposed(v)));
        let dw = want_w.then(|| of_weight(x, da.clone()));
        let dx = dx_b.map(|dx_b| product_add(dx_b, plain(da), layout.transposed(w), math));
        [dx, dw, dv, du]
    }
}
