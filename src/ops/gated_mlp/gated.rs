//! The element-wise part of a gated MLP as an operator of its own, h = f(a) ⊙ b, for networks whose products have
//! adapters. The derivation is in the parent module. Kept for backward: a and b.

use burn::tensor::Tensor;

use super::gate::{gate, gate_backward};
use crate::ops::activation::Activation;
use crate::ops::cost::{Cost, Moment, Setting};
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::ops::narrow;

/// h [tokens, intermediate] in the type of a and b, which are of this shape too.
pub fn gated(a: Tensor<2>, b: Tensor<2>, activation: Activation) -> Tensor<2> {
    custom(OperatorName::Swiglu, [a, b].map(Tensor::into_dispatch), |inputs| {
        let [a, b] = inputs.map(Tensor::<2>::from_dispatch);
        let h = gate(a.clone(), b.clone(), activation);
        (h, move |g: Tensor<2>, [want_a, want_b]| {
            let dtype = a.dtype();
            let [da, db, _] = gate_backward(a, b, narrow(g, dtype), activation);
            [want_a.then(|| da.into_dispatch()), want_b.then(|| db.into_dispatch())]
        })
    })
}

/// a and b side by side are the input; backward writes da and db in their place.
pub fn gated_cost(setting: &Setting, columns: u64) -> Cost {
    let a = setting.activation(columns);
    Cost {
        input: 2 * a,
        output: a,
        holds_input: true,
        launches: [1, 1],
        ..Cost::new(Moment::workspace(a), Moment::default())
    }
    .named(OperatorName::Swiglu, setting)
}
