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
//! Statistics are fp32 whatever the tensors' type. On CUDA the kernel that makes dx adds it to the gradient that x,
//! the residual stream, has from the sum behind the norm. Kept for backward: x and one or two numbers a row.

use burn::tensor::{DType, Tensor};

use super::backend::{cube, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting};
use super::function::{Earlier, custom_adding};
use super::kernels::norm as kernels;
use super::{Operator, narrow, rounded, wide};

/// y [tokens, hidden] of dtype `out` from x [tokens, hidden] and weight [hidden].
pub fn rms_norm(x: Tensor<2>, weight: Tensor<1>, epsilon: f64, out: DType, operator: Operator) -> Tensor<2> {
    if operator == Operator::Plain {
        let rstd = rms_statistics(wide(x.clone()), epsilon);
        return narrow(wide(x) * rstd * wide(weight).unsqueeze(), out);
    }
    custom_adding([x.into_dispatch(), weight.into_dispatch()], |[x, weight], _| {
        let (x, weight) = (Tensor::<2>::from_dispatch(x), Tensor::<1>::from_dispatch(weight));
        let (y, rstd) = rms_forward(&x, &weight, epsilon, out);
        (y, move |g: Tensor<2>, _, earlier: &mut Earlier<'_>| {
            let dtype = weight.dtype();
            let earlier = on_cuda(&x).then(|| earlier(0)).flatten().map(Tensor::from_dispatch);
            let (dx, dweight) = rms_backward(x, weight, rstd, g, earlier);
            [Some(dx.into_dispatch()), Some(rounded(dweight, dtype).into_dispatch())]
        })
    })
}

/// y and r [tokens] in fp32.
fn rms_forward(x: &Tensor<2>, weight: &Tensor<1>, epsilon: f64, out: DType) -> (Tensor<2>, Tensor<1>) {
    if on_cuda(x) {
        let (y, rstd) = kernels::rms_norm(&cube(x.clone()), &cube(weight.clone()), epsilon as f32, out);
        return (uncube(y), uncube(rstd));
    }
    let rstd = rms_statistics(wide(x.clone()), epsilon);
    let y = narrow(wide(x.clone()) * rstd.clone() * wide(weight.clone()).unsqueeze(), out);
    (y, rstd.squeeze_dim(1))
}

/// dx plus what is `earlier`, on CUDA alone, and dw in fp32.
fn rms_backward(
    x: Tensor<2>,
    weight: Tensor<1>,
    rstd: Tensor<1>,
    g: Tensor<2>,
    earlier: Option<Tensor<2>>,
) -> (Tensor<2>, Tensor<1>) {
    if on_cuda(&x) {
        let (weight, rstd, earlier) = (cube(weight), cube(rstd), earlier.map(cube));
        let (dx, dweight) = kernels::rms_norm_backward(&cube(x), &weight, &rstd, &cube(g), earlier.as_ref());
        return (uncube(dx), uncube(dweight));
    }
    let (dtype, g, rstd) = (x.dtype(), wide(g), rstd.unsqueeze_dim::<2>(1));
    let normal = wide(x) * rstd.clone();
    let dweight = (g.clone() * normal.clone()).sum_dim(0).squeeze_dim(0);
    let g = g * wide(weight).unsqueeze();
    let share = (g.clone() * normal.clone()).mean_dim(1);
    (narrow((g - normal * share) * rstd, dtype), dweight)
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
    custom_adding(inputs, |[x, weight, bias], _| {
        let (x, weight) = (Tensor::<2>::from_dispatch(x), Tensor::<1>::from_dispatch(weight));
        let bias = Tensor::<1>::from_dispatch(bias);
        let (y, mean, rstd) = layer_forward(&x, &weight, &bias, epsilon, out);
        let bias_dtype = bias.dtype();
        (y, move |g: Tensor<2>, _, earlier: &mut Earlier<'_>| {
            let dtype = weight.dtype();
            let earlier = on_cuda(&x).then(|| earlier(0)).flatten().map(Tensor::from_dispatch);
            let (dx, dweight, dbias) = layer_backward(x, weight, [mean, rstd], g, earlier);
            [
                Some(dx.into_dispatch()),
                Some(rounded(dweight, dtype).into_dispatch()),
                Some(rounded(dbias, bias_dtype).into_dispatch()),
            ]
        })
    })
}

/// y, and the mean and r [tokens] in fp32.
fn layer_forward(
    x: &Tensor<2>,
    weight: &Tensor<1>,
    bias: &Tensor<1>,
    epsilon: f64,
    out: DType,
) -> (Tensor<2>, Tensor<1>, Tensor<1>) {
    if on_cuda(x) {
        let [weight, bias] = [weight, bias].map(|t| cube(t.clone()));
        let (y, mean, rstd) = kernels::layer_norm(&cube(x.clone()), &weight, &bias, epsilon as f32, out);
        return (uncube(y), uncube(mean), uncube(rstd));
    }
    let (mean, rstd) = layer_statistics(wide(x.clone()), epsilon);
    let normal = (wide(x.clone()) - mean.clone()) * rstd.clone();
    let y = narrow(normal * wide(weight.clone()).unsqueeze() + wide(bias.clone()).unsqueeze(), out);
    (y, mean.squeeze_dim(1), rstd.squeeze_dim(1))
}

/// dx plus what is `earlier`, on CUDA alone, and dw and db in fp32.
fn layer_backward(
    x: Tensor<2>,
    weight: Tensor<1>,
    [mean, rstd]: [Tensor<1>; 2],
    g: Tensor<2>,
    earlier: Option<Tensor<2>>,
) -> (Tensor<2>, Tensor<1>, Tensor<1>) {
    if on_cuda(&x) {
        let ([weight, mean, rstd], earlier) = ([weight, mean, rstd].map(cube), earlier.map(cube));
        let (dx, dweight, dbias) =
            kernels::layer_norm_backward(&cube(x), &weight, &mean, &rstd, &cube(g), earlier.as_ref());
        return (uncube(dx), uncube(dweight), uncube(dbias));
    }
    let (dtype, g) = (x.dtype(), wide(g));
    let [mean, rstd] = [mean, rstd].map(|t| t.unsqueeze_dim::<2>(1));
    let normal = (wide(x) - mean) * rstd.clone();
    let dbias = g.clone().sum_dim(0).squeeze_dim(0);
    let dweight = (g.clone() * normal.clone()).sum_dim(0).squeeze_dim(0);
    let g = g * wide(weight).unsqueeze();
    let share = (g.clone() * normal.clone()).mean_dim(1);
    let mean = g.clone().mean_dim(1);
    (narrow((g - mean - normal * share) * rstd, dtype), dweight, dbias)
}

/// x [tokens, columns] is kept, and `numbers` in fp32 of each token: 1 of RMSNorm, 2 of LayerNorm, which has as
/// many parameters a column.
pub fn cost(setting: &Setting, columns: u64, numbers: u64) -> Cost {
    let stored = setting.stored;
    let (shape, plain) = ([setting.tokens(), columns], setting.ops.norm == Operator::Plain);
    let padded = |element| setting.device.padded(shape, element);
    let (x, wide) = (shape[0] * columns * stored, padded(4));
    let y = if plain { padded(setting.element()) } else { setting.activation(columns) };
    let statistics = setting.wide(numbers);
    let parameters = numbers * columns;
    // Burn's autodiff keeps x in fp32 as it is squared and as it is scaled, or less its mean both times, and
    // what the weight multiplies. RMSNorm of an fp32 x keeps x itself.
    let keeps_x = !plain || (numbers == 1 && stored == 4);
    let (forward, kept, backward) = match (plain, setting.on_cuda()) {
        (false, true) => (y + statistics, statistics, x + statistics),
        (false, false) => (2 * wide + y, statistics, 4 * wide + x),
        (true, _) => {
            let kept = if keeps_x { wide } else { 3 * wide } + 3 * statistics;
            (kept + y, kept, kept + 3 * wide)
        }
    };
    let forward = Moment::workspace(forward);
    Cost {
        input: x,
        output: y,
        holds_input: keeps_x,
        kept,
        forward,
        passing: forward,
        backward: Moment::workspace(backward),
        parameters,
        largest: columns,
        weights: parameters * stored,
        gradients: parameters * stored,
        ..Cost::default()
    }
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
