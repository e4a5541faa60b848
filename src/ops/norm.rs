//! RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) with hand-written backward.
//!
//! With r = 1/√(mean(x²) + ε), x̂ = x·r and the weight w, y = x̂ ⊙ w; LayerNorm first subtracts the
//! mean and adds a bias b. From the gradient g of y, with ĝ = g ⊙ w and means over a row:
//!
//! ```text
//! RMSNorm    dx = r (ĝ − x̂ · mean(ĝ ⊙ x̂))                dw = Σ_rows g ⊙ x̂
//! LayerNorm  dx = r (ĝ − mean(ĝ) − x̂ · mean(ĝ ⊙ x̂))      dw as above, db = Σ_rows g
//! ```
//!
//! Statistics are fp32 whatever the tensors' type. Kept for backward: x and one or two numbers a row.

use burn::tensor::{DType, Tensor};

use super::function::custom;
use super::{Operator, narrow, wide};

/// y [tokens, hidden] of dtype `out` from x [tokens, hidden] and weight [hidden].
pub fn rms_norm(x: Tensor<2>, weight: Tensor<1>, epsilon: f64, out: DType, operator: Operator) -> Tensor<2> {
    if operator == Operator::Plain {
        let rstd = rms_statistics(wide(x.clone()), epsilon);
        return narrow(wide(x) * rstd * wide(weight).unsqueeze(), out);
    }
    custom([x.into_dispatch(), weight.into_dispatch()], |[x, weight]| {
        let (x, weight) = (Tensor::<2>::from_dispatch(x), Tensor::<1>::from_dispatch(weight));
        let rstd = rms_statistics(wide(x.clone()), epsilon);
        let y = narrow(wide(x.clone()) * rstd.clone() * wide(weight.clone()).unsqueeze(), out);
        (y, move |g: Tensor<2>, [want_x, want_weight]| {
            let (dtype, g) = (x.dtype(), wide(g));
            let normal = wide(x) * rstd.clone();
            let dweight = want_weight
                .then(|| narrow((g.clone() * normal.clone()).sum_dim(0).squeeze_dim(0), weight.dtype()));
            let dx = want_x.then(|| {
                let g = g * wide(weight).unsqueeze();
                let share = (g.clone() * normal.clone()).mean_dim(1);
                narrow((g - normal * share) * rstd, dtype)
            });
            [dx.map(Tensor::into_dispatch), dweight.map(Tensor::<1>::into_dispatch)]
        })
    })
}

/// y [tokens, hidden] of dtype `out` from x [tokens, hidden], weight and bias [hidden].
pub fn layer_norm(
    x: Tensor<2>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    epsilon: f64,
    out: DType,
    operator: Operator,
) -> Tensor<2> {
    if operator == Operator::Plain {
        let (mean, rstd) = layer_statistics(wide(x.clone()), epsilon);
        let normal = (wide(x) - mean) * rstd;
        return narrow(normal * wide(weight).unsqueeze() + wide(bias).unsqueeze(), out);
    }
    let inputs = [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
    custom(inputs, |[x, weight, bias]| {
        let (x, weight) = (Tensor::<2>::from_dispatch(x), Tensor::<1>::from_dispatch(weight));
        let bias = Tensor::<1>::from_dispatch(bias);
        let (mean, rstd) = layer_statistics(wide(x.clone()), epsilon);
        let normal = (wide(x.clone()) - mean.clone()) * rstd.clone();
        let y = narrow(normal * wide(weight.clone()).unsqueeze() + wide(bias.clone()).unsqueeze(), out);
        let bias_dtype = bias.dtype();
        (y, move |g: Tensor<2>, [want_x, want_weight, want_bias]| {
            let (dtype, g) = (x.dtype(), wide(g));
            let normal = (wide(x) - mean) * rstd.clone();
            let dbias = want_bias.then(|| narrow(g.clone().sum_dim(0).squeeze_dim(0), bias_dtype));
            let dweight = want_weight
                .then(|| narrow((g.clone() * normal.clone()).sum_dim(0).squeeze_dim(0), weight.dtype()));
            let dx = want_x.then(|| {
                let g = g * wide(weight).unsqueeze();
                let share = (g.clone() * normal.clone()).mean_dim(1);
                let mean = g.clone().mean_dim(1);
                narrow((g - mean - normal * share) * rstd, dtype)
            });
            [
                dx.map(Tensor::into_dispatch),
                dweight.map(Tensor::<1>::into_dispatch),
                dbias.map(Tensor::<1>::into_dispatch),
            ]
        })
    })
}

/// 1/√(mean(x²) + ε) of every row, [tokens, 1].
fn rms_statistics(x: Tensor<2>, epsilon: f64) -> Tensor<2> {
    (x.square().mean_dim(1) + epsilon).sqrt().recip()
}

/// Mean and 1/√(variance + ε) of every row, [tokens, 1] each; the variance is the biased one.
fn layer_statistics(x: Tensor<2>, epsilon: f64) -> (Tensor<2>, Tensor<2>) {
    let mean = x.clone().mean_dim(1);
    let rstd = ((x - mean.clone()).square().mean_dim(1) + epsilon).sqrt().recip();
    (mean, rstd)
}
