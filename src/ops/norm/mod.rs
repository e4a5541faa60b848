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

mod cpu;
pub mod cuda;
mod cuda_kernels;

use burn::tensor::{DType, Tensor};

use super::backend::{cube, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting, Tensors, Trained};
use super::function::{Earlier, InputGradients, custom_adding};
use super::name::OperatorName;
use super::{Operator, narrow, rounded, wide};
use crate::ops::norm::cuda as kernels;
use crate::ops::slices;

/// y [tokens, hidden] of dtype `out` from x [tokens, hidden], weight and bias [hidden]: LayerNorm, or RMSNorm where
/// there is no bias.
pub fn norm(
    x: Tensor<2>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    epsilon: f64,
    out: DType,
    operator: Operator,
) -> Tensor<2> {
    if operator == Operator::Plain {
        let _scope = OperatorName::Norm.scope();
        return formula(x, weight, bias, epsilon, out).0;
    }
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    let forward = |x, weight, bias| {
        Kept::forward(Tensor::from_dispatch(x), Tensor::from_dispatch(weight), bias, epsilon, out)
    };
    match bias {
        None => custom_adding(OperatorName::Norm, [x, weight], |[x, weight], _| {
            let (y, kept) = forward(x, weight, None);
            (y, move |g: Tensor<2>, [_, weight]: [bool; 2], earlier: &mut Earlier<'_>| {
                let [dx, dweight, _] = kept.backward(g, weight, earlier);
                [dx, dweight]
            })
        }),
        Some(bias) => {
            custom_adding(OperatorName::Norm, [x, weight, bias.into_dispatch()], |[x, weight, bias], _| {
                let (y, kept) = forward(x, weight, Some(Tensor::from_dispatch(bias)));
                (y, move |g: Tensor<2>, [_, weight, bias]: [bool; 3], earlier: &mut Earlier<'_>| {
                    kept.backward(g, weight || bias, earlier)
                })
            })
        }
    }
}

/// y; and of every row the mean, where it is subtracted, and r, [tokens, 1] in fp32. The variance is the biased one.
fn formula(
    x: Tensor<2>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    epsilon: f64,
    out: DType,
) -> (Tensor<2>, Option<Tensor<2>>, Tensor<2>) {
    let all = wide(x.clone());
    let mean = bias.as_ref().map(|_| all.clone().mean_dim(1));
    let rstd = (less(all, mean.clone()).square().mean_dim(1) + epsilon).sqrt().recip();
    let y = less(wide(x), mean.clone()) * rstd.clone() * wide(weight).unsqueeze();
    let y = match bias {
        None => y,
        Some(bias) => y + wide(bias).unsqueeze(),
    };
    (narrow(y, out), mean, rstd)
}

/// x − mean, where there is one.
fn less(x: Tensor<2>, mean: Option<Tensor<2>>) -> Tensor<2> {
    match mean {
        None => x,
        Some(mean) => x - mean,
    }
}

/// What one call keeps for backward.
struct Kept {
    x: Tensor<2>,
    weight: Tensor<1>,
    /// The mean, of LayerNorm, and r, [tokens] in fp32.
    mean: Option<Tensor<1>>,
    rstd: Tensor<1>,
    /// The type of the bias's gradient.
    bias: Option<DType>,
}

impl Kept {
    fn forward(
        x: Tensor<2>,
        weight: Tensor<1>,
        bias: Option<Tensor<1>>,
        epsilon: f64,
        out: DType,
    ) -> (Tensor<2>, Self) {
        let bias_dtype = bias.as_ref().map(Tensor::dtype);
        let (y, mean, rstd) = if on_cuda(&x) {
            let (x, weight, bias) = (cube(x.clone()), cube(weight.clone()), bias.map(cube));
            let (y, mean, rstd) = kernels::norm(&x, &weight, bias.as_ref(), epsilon as f32, out);
            (uncube(y), mean.map(uncube), uncube(rstd))
        } else if out == DType::F32
            && slices::takes(&x)
            && slices::takes(&weight)
            && bias.iter().all(slices::takes)
        {
            cpu::forward(&x, &weight, bias, epsilon as f32)
        } else {
            let (y, mean, rstd) = formula(x.clone(), weight.clone(), bias, epsilon, out);
            (y, mean.map(|mean| mean.squeeze_dim(1)), rstd.squeeze_dim(1))
        };
        (y, Self { x, weight, mean, rstd, bias: bias_dtype })
    }

    /// dx, and dw and db in their types where they are wanted; on CUDA dx plus what x has `earlier`.
    fn backward(self, g: Tensor<2>, wants_parameters: bool, earlier: &mut Earlier<'_>) -> InputGradients<3> {
        let (weight, bias) = (self.weight.dtype(), self.bias);
        let (dx, dweight, dbias) = match on_cuda(&g) {
            true => self.on_device(g, wants_parameters, earlier(0).map(Tensor::from_dispatch)),
            false => {
                let (dx, dweight, dbias) = self.gradients(g);
                (dx, Some(dweight), dbias)
            }
        };
        let dweight = dweight.map(|dweight| rounded(dweight, weight).into_dispatch());
        let dbias = dbias.zip(bias).map(|(dbias, dtype)| rounded(dbias, dtype).into_dispatch());
        [Some(dx.into_dispatch()), dweight, dbias]
    }

    /// On CUDA: dx plus what is `earlier`, and dw and db in the weight's type where they are wanted.
    fn on_device(
        self,
        g: Tensor<2>,
        wants_parameters: bool,
        earlier: Option<Tensor<2>>,
    ) -> (Tensor<2>, Option<Tensor<1>>, Option<Tensor<1>>) {
        let Self { x, weight, mean, rstd, .. } = self;
        let (x, weight, rstd, g) = (cube(x), cube(weight), cube(rstd), cube(g));
        let (mean, earlier) = (mean.map(cube), earlier.map(cube));
        let (dx, parts) = kernels::norm_backward(&x, &weight, mean.as_ref(), &rstd, &g, earlier.as_ref());
        let (dweight, dbias) = wants_parameters.then(|| parts.sum(weight.dtype)).unzip();
        (uncube(dx), dweight.map(uncube), dbias.flatten().map(uncube))
    }

    /// On the CPU: dx, and dw and db in fp32.
    fn gradients(self, g: Tensor<2>) -> (Tensor<2>, Tensor<1>, Option<Tensor<1>>) {
        let Self { x, weight, mean, rstd, .. } = self;
        if slices::takes(&x) && slices::takes(&weight) && slices::takes(&g) {
            return cpu::backward(x, weight, mean, rstd, g);
        }
        let (dtype, g, rstd) = (x.dtype(), wide(g), rstd.unsqueeze_dim::<2>(1));
        let mean = mean.map(|mean| mean.unsqueeze_dim::<2>(1));
        let subtracts_mean = mean.is_some();
        let normal = less(wide(x), mean) * rstd.clone();
        let dbias = subtracts_mean.then(|| g.clone().sum_dim(0).squeeze_dim(0));
        let dweight = (g.clone() * normal.clone()).sum_dim(0).squeeze_dim(0);
        let g = g * wide(weight).unsqueeze();
        let share = (g.clone() * normal.clone()).mean_dim(1);
        let mean = subtracts_mean.then(|| g.clone().mean_dim(1));
        (narrow((less(g, mean) - normal * share) * rstd, dtype), dweight, dbias)
    }
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
    // LayerNorm has a bias.
    let Trained { weights, biases } = setting.trained;
    let trained = u64::from(weights) * columns + u64::from(biases) * (numbers - 1) * columns;
    // Burn's autodiff keeps x in fp32 as it is squared and as it is scaled, or less its mean both times, and
    // what the weight multiplies. RMSNorm of an fp32 x keeps x itself.
    let keeps_x = !plain || (numbers == 1 && stored == 4);
    let (forward, kept, backward) = match (plain, setting.on_cuda()) {
        (false, true) => (y + statistics, statistics, x + statistics),
        (false, false) if setting.has_kernels() => (y + statistics, statistics, statistics),
        (false, false) => (2 * wide + y, statistics, 4 * wide + x),
        (true, _) => {
            let kept = if keeps_x { wide } else { 3 * wide } + 3 * statistics;
            (kept + y, kept, kept + 3 * wide)
        }
    };
    Cost {
        input: x,
        output: y,
        holds_input: keeps_x,
        kept,
        parameters,
        trained: Tensors::vectors(trained / columns, columns),
        largest: trained.min(columns),
        weights: parameters * stored,
        gradients: trained * stored,
        // Blocks of tokens and their sums.
        launches: if plain { [8, 16] } else { [1, 2] },
        ..Cost::new(Moment::workspace(forward), Moment::workspace(backward))
    }
    .named(OperatorName::Norm, setting)
}
