//! [`Call`]: the gated MLP forward and backward outside of the graph, with temporaries freed as early as the formula
//! allows. Names follow the derivation in the parent module.

use burn::tensor::{DType, Tensor};

use super::GatedMlp;
use super::gate::{activate_and_gate, gate, gate_backward};
use crate::ops::Level;
use crate::ops::dense::Arithmetic;
use crate::ops::product::{plain, product, product_add, product_bias};

/// What forward keeps for backward.
pub struct Call {
    /// `None` where neither W nor V has a gradient and a and b are kept.
    x: Option<Tensor<2>>,
    /// W, V and U.
    weights: [Tensor<2>; 3],
    /// At level 0 a, b and s, at level 0.5 a and b, at level 1 none.
    kept: Vec<Tensor<2>>,
    form: GatedMlp,
}

impl Call {
    /// y, added to a tensor where there is one, and what the level keeps, from x and W, V and U in the compute type.
    pub fn forward(
        x: Tensor<2>,
        weights: [Tensor<2>; 3],
        form: GatedMlp,
        onto: Option<Tensor<2>>,
    ) -> (Tensor<2>, Self) {
        let GatedMlp { activation, layout, level, arithmetic: Arithmetic { dtype, math } } = form;
        let times =
            |x: Tensor<2>, weight: &Tensor<2>| product(plain(x), layout.weight(weight.clone()), dtype, math);
        let [w, v, u] = &weights;
        let (a, b) = (times(x.clone(), w), times(x.clone(), v));
        let (kept, h) = match level {
            Level::Keep => {
                let [s, h] = activate_and_gate(a.clone(), b.clone(), activation);
                (vec![a, b, s], h)
            }
            Level::Elementwise => {
                let h = gate(a.clone(), b.clone(), activation);
                (vec![a, b], h)
            }
            Level::Full => (vec![], gate(a, b, activation)),
        };
        let y = product_bias(plain(h), layout.weight(u.clone()), None, onto, dtype, math);
        (y, Self { x: Some(x), weights, kept, form })
    }

    /// The same for frozen W and V: x is kept where a and b are computed again.
    pub fn without_x(self) -> Self {
        Self { x: self.x.filter(|_| self.kept.is_empty()), ..self }
    }

    /// dx in the compute type; dW, dV, dU as `weight_dtype`; `None` where not wanted: a frozen weight costs no product.
    pub fn backward(
        self,
        g: Tensor<2>,
        [want_x, want_w, want_v, want_u]: [bool; 4],
        weight_dtype: DType,
    ) -> [Option<Tensor<2>>; 4] {
        let Self { x, weights: [w, v, u], kept, form } = self;
        let GatedMlp { activation, layout, arithmetic: Arithmetic { dtype, math }, .. } = form;
        let product_of = |lhs, rhs| product(lhs, rhs, dtype, math);
        let mut kept = kept.into_iter();
        let (a, b, s) = match (kept.next(), kept.next()) {
            (Some(a), Some(b)) => (a, b, kept.next()),
            _ => {
                let x = || plain(x.clone().expect("kept where a and b are not"));
                let a = product_of(x(), layout.weight(w.clone()));
                (a, product_of(x(), layout.weight(v.clone())), None)
            }
        };
        let dh = product_of(plain(g.clone()), layout.transposed(u));
        // The graph's node may still hold what was kept: s is freed before a, b and dh are copied.
        drop(s);
        let [da, db, h] = gate_backward(a, b, dh, activation);

        let of_weight = |x, g| {
            let (lhs, rhs) = layout.gradient(x, g);
            product(lhs, rhs, weight_dtype, math)
        };
        let du = want_u.then(|| of_weight(h, g));
        let dv = x.clone().filter(|_| want_v).map(|x| of_weight(x, db.clone()));
        // dx through b first, so that db is freed before the product with da exists.
        let dx_b = want_x.then(|| product_of(plain(db), layout.transposed(v)));
        let dw = x.filter(|_| want_w).map(|x| of_weight(x, da.clone()));
        let dx = dx_b.map(|dx_b| product_add(Some(dx_b), plain(da), layout.transposed(w), dtype, math));
        [dx, dw, dv, du]
    }
}
