//! The element-wise part of a gated MLP as an operator of its own, h = f(a) ⊙ b, for networks whose products have
//! adapters. The derivation is in the parent module. Kept for backward: a and b.

use burn::tensor::Tensor;

use super::gate::{gate, gate_backward};
use crate::ops::activation::Activation;
use crate::ops::backend::on_cuda;
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

/// [`gated`] of a and b side by side in one tensor [tokens, 2 · intermediate]. On the CPU, where parts of a tensor are copied
/// before a kernel reads them, that tensor alone is kept, and its gradient is made at once.
pub fn gated_columns(both: Tensor<2>, activation: Activation) -> Tensor<2> {
    let parts = |both: &Tensor<2>| {
        let columns = both.dims()[1] / 2;
        [0, columns].map(|first| both.clone().narrow(1, first, columns))
    };
    if on_cuda(&both) {
        let [a, b] = parts(&both);
        return gated(a, b, activation);
    }
    custom(OperatorName::Swiglu, [both.into_dispatch()], |[both]| {
        let both = Tensor::<2>::from_dispatch(both);
        let [a, b] = parts(&both);
        let h = gate(a, b, activation);
        (h, move |g: Tensor<2>, _: [bool; 1]| {
            let (dtype, [a, b]) = (both.dtype(), parts(&both));
            drop(both);
            let [da, db, _] = gate_backward(a, b, narrow(g, dtype), activation);
            [Some(Tensor::cat(vec![da, db], 1).into_dispatch())]
        })
    })
}

/// What [`gated_columns`] costs on the CPU: copies of a and b, of which h takes the place of one; then da and db, and both in
/// one tensor.
pub fn gated_columns_cost(setting: &Setting, columns: u64) -> Cost {
    let both = Moment::workspace(2 * setting.activation(columns));
    Cost { forward: both, passing: both, backward: both, ..gated_cost(setting, columns) }
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
