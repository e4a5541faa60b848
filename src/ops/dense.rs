//! The linear layer y = xW (+ b) with hand-written backward: dx = gWᵀ, dW = xᵀg, db = Σ_tokens g.
//!
//! It multiplies in the compute type whatever its inputs are stored in: with fp32 weights in a bf16
//! region ([`autocast`](crate::ops::autocast())) W is rounded once, in forward, and dW comes out of
//! the product in fp32.
//!
//! Kept for backward: W, and x where W is trained.

use burn::tensor::{DType, Tensor};

use super::cost::{Cost, Flops, Moment, Setting, Trained};
use super::function::{InputGradients, custom, is_tracked};
use super::name::OperatorName;
use super::product::{
    Factor, Fp32Math, Gradient, plain, product, product_bias, product_bias_gradient, transpose,
};
use super::{narrow, wide};
use crate::device::dtype;
use crate::ops::autocast;
use crate::words::Compute;

/// How a weight matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// [inputs, outputs]: GPT-2's Conv1D.
    InOut,
    /// [outputs, inputs]: `torch.nn.Linear`.
    OutIn,
}

impl WeightLayout {
    /// The shape of a weight from `inputs` to `outputs` columns.
    pub fn shape<T>(self, inputs: T, outputs: T) -> [T; 2] {
        match self {
            Self::InOut => [inputs, outputs],
            Self::OutIn => [outputs, inputs],
        }
    }

    /// The matrix that x is multiplied by.
    pub fn weight(self, weight: Tensor<2>) -> Factor<2> {
        match self {
            Self::InOut => plain(weight),
            Self::OutIn => transpose(weight),
        }
    }

    /// Its transpose.
    pub fn transposed(self, weight: Tensor<2>) -> Factor<2> {
        match self {
            Self::InOut => transpose(weight),
            Self::OutIn => plain(weight),
        }
    }

    /// The factors of the weight's gradient, xᵀg as it lies in memory, and which of them g is.
    pub fn gradient(self, x: Tensor<2>, g: Tensor<2>) -> (Factor<2>, Factor<2>, Gradient) {
        match self {
            Self::InOut => (transpose(x), plain(g), Gradient::Rhs),
            Self::OutIn => (transpose(g), plain(x), Gradient::Lhs),
        }
    }
}

/// The arithmetic of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// What the operands are rounded to and the result is stored in.
    pub dtype: DType,
    /// How fp32 operands are multiplied.
    pub math: Fp32Math,
}

impl Arithmetic {
    pub fn of(compute: Compute) -> Self {
        Self { dtype: dtype(compute), math: Fp32Math::of(compute) }
    }

    /// The same in the type of the autocast region around the call.
    #[must_use]
    pub fn in_region(self) -> Self {
        Self { dtype: autocast::region().unwrap_or(self.dtype), ..self }
    }
}

/// A weight matrix.
#[derive(Clone, Debug)]
pub struct Weight {
    pub stored: Tensor<2>,
    /// The same in the type it is multiplied in, outside of autodiff, where a cast is kept.
    pub cast: Option<Tensor<2>>,
}

impl Weight {
    /// As `dtype`, outside of autodiff's graph.
    pub fn narrow(self, dtype: DType) -> Tensor<2> {
        match self.cast {
            Some(cast) if cast.dtype() == dtype => cast,
            _ => narrow(self.stored, dtype),
        }
    }

    /// Outside of the graph: a constant.
    #[must_use]
    pub fn outside(self) -> Self {
        Self { stored: self.stored.inner(), ..self }
    }
}

impl From<Tensor<2>> for Weight {
    fn from(stored: Tensor<2>) -> Self {
        Self { stored, cast: None }
    }
}

/// A linear layer.
pub struct Layer {
    pub weight: Weight,
    /// [outputs]
    pub bias: Option<Tensor<1>>,
    pub layout: WeightLayout,
    pub arithmetic: Arithmetic,
}

impl Layer {
    /// As [`dense`].
    pub fn forward(self, x: Tensor<2>) -> Tensor<2> {
        dense(x, self.weight, self.bias, self.layout, self.arithmetic)
    }
}

/// y [tokens, outputs] in the compute type: that of the autocast region around the call, else that of
/// `arithmetic`.
pub fn dense(
    x: Tensor<2>,
    weight: impl Into<Weight>,
    bias: Option<Tensor<1>>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let Weight { stored, cast } = weight.into();
    let (arithmetic, trained) = (arithmetic.in_region(), is_tracked(&stored));
    let call = |x, stored, bias| {
        let weight = Weight { stored: Tensor::from_dispatch(stored), cast };
        Kept::forward(Tensor::from_dispatch(x), weight, bias, layout, arithmetic, trained)
    };
    match bias {
        None => custom(OperatorName::Linear, [x.into_dispatch(), stored.into_dispatch()], |[x, stored]| {
            let (y, kept) = call(x, stored, None);
            (y, move |g, [want_x, want_weight]: [bool; 2]| {
                let [dx, dweight, _] = kept.backward(g, [want_x, want_weight, false], None);
                [dx, dweight]
            })
        }),
        Some(bias) => {
            let inputs = [x.into_dispatch(), stored.into_dispatch(), bias.into_dispatch()];
            custom(OperatorName::Linear, inputs, |[x, stored, bias]| {
                let bias = Tensor::<1>::from_dispatch(bias);
                let dtype = bias.dtype();
                let (y, kept) = call(x, stored, Some(bias));
                (y, move |g, wanted| kept.backward(g, wanted, Some(dtype)))
            })
        }
    }
}

/// What one call keeps for backward.
struct Kept {
    /// In the compute type, as multiplied; `None` where the weight is frozen.
    x: Option<Tensor<2>>,
    weight: Tensor<2>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
    /// The types of the gradients.
    x_dtype: DType,
    weight_dtype: DType,
}

impl Kept {
    /// y, and what is kept. `trained`: whether the weight is.
    fn forward(
        x: Tensor<2>,
        weight: Weight,
        bias: Option<Tensor<1>>,
        layout: WeightLayout,
        arithmetic: Arithmetic,
        trained: bool,
    ) -> (Tensor<2>, Self) {
        let Arithmetic { dtype, math } = arithmetic;
        let (x_dtype, weight_dtype) = (x.dtype(), weight.stored.dtype());
        let (x, weight) = (narrow(x, dtype), weight.narrow(dtype));
        let (lhs, rhs) = (plain(x.clone()), layout.weight(weight.clone()));
        let y = match bias {
            None => product(lhs, rhs, dtype, math),
            Some(bias) => product_bias(lhs, rhs, narrow(bias, dtype), dtype, math),
        };
        (y, Self { x: trained.then_some(x), weight, layout, arithmetic, x_dtype, weight_dtype })
    }

    /// dx, dW, and db where the layer has a bias.
    fn backward(
        self,
        g: Tensor<2>,
        [want_x, want_weight, want_bias]: [bool; 3],
        bias: Option<DType>,
    ) -> InputGradients<3> {
        let Arithmetic { dtype, math } = self.arithmetic;
        let Self { x, weight, layout, x_dtype, weight_dtype, .. } = self;
        let g = narrow(g, dtype);
        let dx = want_x
            .then(|| narrow(product(plain(g.clone()), layout.transposed(weight), dtype, math), x_dtype));
        let bias = bias.filter(|_| want_bias);
        let (dweight, dbias) = match x.filter(|_| want_weight) {
            None => (None, bias.map(|_| wide(g).sum_dim(0).squeeze_dim(0))),
            Some(x) => {
                let (lhs, rhs, of) = layout.gradient(x, g);
                match bias {
                    None => (Some(product(lhs, rhs, weight_dtype, math)), None),
                    Some(_) => {
                        let (dweight, dbias) = product_bias_gradient(lhs, rhs, of, weight_dtype, math);
                        (Some(dweight), Some(dbias))
                    }
                }
            }
        };
        let dbias = dbias.zip(bias).map(|(dbias, dtype)| narrow(dbias, dtype).into_dispatch());
        [dx.map(Tensor::into_dispatch), dweight.map(Tensor::into_dispatch), dbias]
    }
}

/// Where the weight is trained x [tokens, inputs] is kept, and under autocast the weight in the compute type. Backward
/// makes dx, frees the cast, and makes dW.
pub fn cost(setting: &Setting, [inputs, outputs]: [u64; 2], bias: bool, layout: WeightLayout) -> Cost {
    let weight = setting.weight(layout.shape(inputs, outputs));
    let bias = if bias { outputs } else { 0 };
    let Trained { weights, biases } = setting.trained;
    let trained_bias = if biases { bias } else { 0 };
    let trained_weight = if weights { weight.elements } else { 0 };
    let tokens = setting.tokens();
    let (x, y) = (tokens * inputs, tokens * outputs);
    let [x_bytes, y_bytes] = [inputs, outputs].map(|columns| setting.activation(columns));
    let gradients = if weights { weight.gradient } else { 0 } + trained_bias * setting.stored;
    let wide = setting.stored > setting.element();
    // A bias's gradient is added up in an fp32 copy of g, but by a GPU's product that makes the weight's too.
    let copies = trained_bias > 0 && setting.element() < 4 && !(setting.on_cuda() && weights);
    let sums = if copies { 4 * y } else { 0 };
    let forward = Moment::workspace(weight.cast + y_bytes + setting.product(x, weight.elements, y, false));
    let dx = Moment::workspace(x_bytes + weight.cast + setting.product(y, weight.elements, x, false));
    let to_weight = if weights { setting.product(x, y, weight.elements, wide) } else { 0 };
    let dweight = Moment::gradients(gradients) + Moment::workspace(x_bytes + to_weight.max(sums));
    let products = 2.0 * tokens as f64 * weight.elements as f64;
    let flops = if weights { Flops::of_products(products) } else { Flops::of_frozen(products) };
    Cost {
        input: x_bytes,
        output: y_bytes,
        holds_input: weights,
        kept: weight.cast,
        parameters: weight.elements + bias,
        trained: trained_weight + trained_bias,
        largest: trained_weight.max(trained_bias),
        weights: weight.bytes + bias * setting.stored,
        gradients,
        casts: weight.kept_cast,
        flops,
        ..Cost::new(forward, Moment::highest([dx, dweight]))
    }
    .named(OperatorName::Linear, setting)
}
