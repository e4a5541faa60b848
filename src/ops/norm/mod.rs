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
//! With `plus_one` the weight is 1 + w, as in Gemma, added in fp32. A row of x may have several heads, each of as many
//! columns as the weight: each head is normalised by itself.
//!
//! Statistics are fp32 whatever the tensors' type, and y is rounded once, as Gemma's and OLMo 2's norms are; Llama's rounds
//! x̂ and then the product with w. On CUDA the kernel that makes dx adds it to the gradient that x,
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

/// What a norm adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// To the mean square, or the variance, before its root.
    pub epsilon: f64,
    /// 1 to the weight.
    pub plus_one: bool,
}

impl From<f64> for Terms {
    fn from(epsilon: f64) -> Self {
        Self { epsilon, plus_one: false }
    }
}

/// y [tokens, heads · columns] of dtype `out` from x [tokens, heads · columns], weight and bias [columns]: LayerNorm, or
/// RMSNorm where there is no bias.
pub fn norm(
    x: Tensor<2>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    terms: impl Into<Terms>,
    out: DType,
    operator: Operator,
) -> Tensor<2> {
    let terms = terms.into();
    if operator == Operator::Plain {
        let _scope = OperatorName::Norm.scope();
        let (shape, columns) = (x.dims(), weight.dims()[0]);
        return reshaped(formula(by_head(x, columns), weight, bias, terms, out).0, shape);
    }
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    let forward = |x, weight, bias| {
        Kept::forward(Tensor::from_dispatch(x), Tensor::from_dispatch(weight), bias, terms, out)
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
    Terms { epsilon, plus_one }: Terms,
    out: DType,
) -> (Tensor<2>, Option<Tensor<2>>, Tensor<2>) {
    let all = wide(x.clone());
    let mean = bias.as_ref().map(|_| all.clone().mean_dim(1));
    let rstd = (less(all, mean.clone()).square().mean_dim(1) + epsilon).sqrt().recip();
    let y = less(wide(x), mean.clone()) * rstd.clone() * factor(weight, plus_one).unsqueeze();
    let y = match bias {
        None => y,
        Some(bias) => y + wide(bias).unsqueeze(),
    };
    (narrow(y, out), mean, rstd)
}

/// What x̂ is multiplied by.
fn factor(weight: Tensor<1>, plus_one: bool) -> Tensor<1> {
    let weight = wide(weight);
    if plus_one { weight + 1.0 } else { weight }
}

/// x [tokens, heads · columns] with a row for each head.
fn by_head(x: Tensor<2>, columns: usize) -> Tensor<2> {
    let rows = x.dims()[0] * x.dims()[1] / columns;
    reshaped(x, [rows, columns])
}

fn reshaped(x: Tensor<2>, shape: [usize; 2]) -> Tensor<2> {
    if x.dims() == shape { x } else { x.reshape(shape) }
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
    /// [tokens · heads, columns]
    x: Tensor<2>,
    weight: Tensor<1>,
    plus_one: bool,
    /// The mean, of LayerNorm, and r, [tokens · heads] in fp32.
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
        terms: Terms,
        out: DType,
    ) -> (Tensor<2>, Self) {
        let (shape, x) = (x.dims(), by_head(x, weight.dims()[0]));
        let bias_dtype = bias.as_ref().map(Tensor::dtype);
        let (y, mean, rstd) = if on_cuda(&x) {
            let (x, weight, bias) = (cube(x.clone()), cube(weight.clone()), bias.map(cube));
            let (y, mean, rstd) = kernels::norm(&x, &weight, bias.as_ref(), terms, out);
            (uncube(y), mean.map(uncube), uncube(rstd))
        } else if out == DType::F32
            && slices::takes(&x)
            && slices::takes(&weight)
            && bias.iter().all(slices::takes)
        {
            cpu::forward(&x, &weight, bias, terms)
        } else {
            let (y, mean, rstd) = formula(x.clone(), weight.clone(), bias, terms, out);
            (y, mean.map(|mean| mean.squeeze_dim(1)), rstd.squeeze_dim(1))
        };
        let kept = Self { x, weight, plus_one: terms.plus_one, mean, rstd, bias: bias_dtype };
        (reshaped(y, shape), kept)
    }

    /// dx, and dw and db in their types where they are wanted; on CUDA dx plus what x has `earlier`.
    fn backward(self, g: Tensor<2>, wants_parameters: bool, earlier: &mut Earlier<'_>) -> InputGradients<3> {
        let (weight, bias, columns) = (self.weight.dtype(), self.bias, self.weight.dims()[0]);
        let (shape, g) = (g.dims(), by_head(g, columns));
        let (dx, dweight, dbias) = match on_cuda(&g) {
            true => {
                let earlier = earlier(0).map(|earlier| by_head(Tensor::from_dispatch(earlier), columns));
                self.on_device(g, wants_parameters, earlier)
            }
            false => {
                let (dx, dweight, dbias) = self.gradients(g);
                (dx, Some(dweight), dbias)
            }
        };
        let dweight = dweight.map(|dweight| rounded(dweight, weight).into_dispatch());
        let dbias = dbias.zip(bias).map(|(dbias, dtype)| rounded(dbias, dtype).into_dispatch());
        [Some(reshaped(dx, shape).into_dispatch()), dweight, dbias]
    }

    /// On CUDA: dx plus what is `earlier`, and dw and db in the weight's type where they are wanted.
    fn on_device(
        self,
        g: Tensor<2>,
        wants_parameters: bool,
        earlier: Option<Tensor<2>>,
    ) -> (Tensor<2>, Option<Tensor<1>>, Option<Tensor<1>>) {
        let Self { x, weight, plus_one, mean, rstd, .. } = self;
        let (x, weight, rstd, g) = (cube(x), cube(weight), cube(rstd), cube(g));
        let (mean, earlier) = (mean.map(cube), earlier.map(cube));
        let statistics = (mean.as_ref(), &rstd);
        let (dx, parts) = kernels::norm_backward(&x, (&weight, plus_one), statistics, &g, earlier.as_ref());
        let (dweight, dbias) = wants_parameters.then(|| parts.sum(weight.dtype)).unzip();
        (uncube(dx), dweight.map(uncube), dbias.flatten().map(uncube))
    }

    /// On the CPU: dx, and dw and db in fp32.
    fn gradients(self, g: Tensor<2>) -> (Tensor<2>, Tensor<1>, Option<Tensor<1>>) {
        let Self { x, weight, plus_one, mean, rstd, .. } = self;
        if slices::takes(&x) && slices::takes(&weight) && slices::takes(&g) {
            return cpu::backward(x, (weight, plus_one), (mean, rstd), g);
        }
        let (dtype, g, rstd) = (x.dtype(), wide(g), rstd.unsqueeze_dim::<2>(1));
        let mean = mean.map(|mean| mean.unsqueeze_dim::<2>(1));
        let subtracts_mean = mean.is_some();
        let normal = less(wide(x), mean) * rstd.clone();
        let dbias = subtracts_mean.then(|| g.clone().sum_dim(0).squeeze_dim(0));
        let dweight = (g.clone() * normal.clone()).sum_dim(0).squeeze_dim(0);
        let g = g * factor(weight, plus_one).unsqueeze();
        let share = (g.clone() * normal.clone()).mean_dim(1);
        let mean = subtracts_mean.then(|| g.clone().mean_dim(1));
        (narrow((less(g, mean) - normal * share) * rstd, dtype), dweight, dbias)
    }
}

/// x [tokens, heads · columns] is kept, and `numbers` in fp32 of each head: 1 of RMSNorm, 2 of LayerNorm, which has as
/// many parameters a column.
pub fn cost(setting: &Setting, [heads, columns]: [u64; 2], numbers: u64) -> Cost {
    let stored = setting.stored;
    let (shape, plain) = ([setting.tokens(), heads * columns], setting.ops.norm == Operator::Plain);
    let padded = |element| setting.device.padded(shape, element);
    let (x, wide) = (shape[0] * shape[1] * stored, padded(4));
    let y = if plain { padded(setting.element()) } else { setting.activation(shape[1]) };
    let statistics = setting.wide(heads * numbers);
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
