//! y + b with a trained b beside a frozen product: the product's own operator then needs no place for b's gradient,
//! db = Σ_tokens dy. Nothing is kept.

use burn::tensor::{DType, Tensor};

use super::cost::{Cost, Moment, Setting, Tensors};
use super::dense::{Weight, column_sums};
use super::function::custom;
use super::name::OperatorName;
use super::{rounded, wide};

/// y [tokens, columns] + b [columns], added in fp32, in y's type.
pub fn add_bias(y: Tensor<2>, bias: Weight<1>) -> Tensor<2> {
    let Weight { stored, cast, packed } = bias;
    custom(OperatorName::Linear, [y.into_dispatch(), stored.into_dispatch()], |[y, stored]| {
        let (y, stored) = (Tensor::<2>::from_dispatch(y), Tensor::<1>::from_dispatch(stored));
        let (dtype, stored_dtype) = (y.dtype(), stored.dtype());
        let bias = wide(Weight { stored, cast, packed }.narrow(dtype));
        let y = rounded(rounded(y, DType::F32) + bias.unsqueeze_dim(0), dtype);
        (y, move |g: Tensor<2>, [want_y, want_bias]: [bool; 2]| {
            let dbias = want_bias.then(|| column_sums(&g, stored_dtype).into_dispatch());
            [want_y.then(|| g.into_dispatch()), dbias]
        })
    })
}

/// What [`add_bias`] to so many columns costs, whose b is `trained` or not.
pub fn cost(setting: &Setting, columns: u64, trained: bool) -> Cost {
    let (y, wide) = (setting.activation(columns), setting.wide(columns));
    let widened = if setting.element() < 4 { wide } else { 0 };
    let own = if trained { columns } else { 0 };
    let gradients = own * setting.stored;
    // The CPU adds up the gradient in an fp32 copy.
    let sums = if setting.on_cuda() || !trained { 0 } else { widened };
    let forward = Moment::workspace(y + 2 * widened);
    Cost {
        input: y,
        output: y,
        parameters: columns,
        trained: Tensors::vectors(1, own),
        largest: own,
        weights: columns * setting.stored,
        gradients,
        launches: [if widened > 0 { 3 } else { 1 }, if trained { 2 } else { 0 }],
        ..Cost::new(forward, Moment::gradients(gradients) + Moment::workspace(sums))
    }
    .named(OperatorName::Linear, setting)
}
