//! The linear layer y = xW (+ b) with hand-written backward: dx = gWᵀ, dW = xᵀg, db = Σ_tokens g.
//!
//! It multiplies in the compute type whatever its inputs are stored in: with fp32 weights in a bf16
//! region ([`autocast`](crate::ops::autocast())) W is rounded once, in forward, and dW comes out of
//! the product in fp32.
//!
//! Kept for backward: W, and x where W is trained. A W in 4-bit codes is kept in them, and each product turns them into
//! numbers.

mod cost;
mod side_by_side;
mod weight;

use burn::tensor::{DType, Tensor};

pub use cost::cost;
pub use side_by_side::{LAYERS, dense_side_by_side};
pub(super) use side_by_side::{forward, input_gradient, places};
pub use weight::{Arithmetic, Weight, WeightLayout};

use super::activation::{Activation, activate};
use super::backend::{cube, on_cuda, uncube};
use super::function::{Earlier, InputGradients, custom_adding};
use super::kernels::columns;
use super::name::OperatorName;
use super::product::{cpu, plain, product, product_add, product_bias};
use super::{Operator, rounded, wide};
use crate::ops::activation::cuda as kernels;

/// A linear layer.
pub struct Layer {
    pub weight: Weight,
    /// [outputs]
    pub bias: Option<Weight<1>>,
    pub layout: WeightLayout,
    pub arithmetic: Arithmetic,
}

impl Layer {
    /// As [`dense`].
    pub fn forward(self, x: Tensor<2>) -> Tensor<2> {
        self.forward_onto(x, None)
    }

    /// As [`dense_onto`].
    pub fn forward_onto(self, x: Tensor<2>, onto: Option<Tensor<2>>) -> Tensor<2> {
        dense_onto(x, self.weight, self.bias, self.layout, self.arithmetic, onto)
    }
}

/// y [tokens, outputs] in the compute type: that of the autocast region around the call, else that of
/// `arithmetic`.
pub fn dense(
    x: Tensor<2>,
    weight: impl Into<Weight>,
    bias: Option<Weight<1>>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    dense_onto(x, weight, bias, layout, arithmetic, None)
}

/// As [`dense`], with the result added to a tensor of its shape and type outside of the graph, by the layer's product.
pub fn dense_onto(
    x: Tensor<2>,
    weight: impl Into<Weight>,
    bias: Option<Weight<1>>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
    onto: Option<Tensor<2>>,
) -> Tensor<2> {
    let Weight { stored, cast, packed } = weight.into();
    let arithmetic = arithmetic.in_region();
    let keep = |x, stored| {
        let weight = Weight { stored: Tensor::from_dispatch(stored), cast, packed };
        Kept::new(Tensor::from_dispatch(x), weight, layout, arithmetic)
    };
    match bias {
        None => custom_adding(
            OperatorName::Linear,
            [x.into_dispatch(), stored.into_dispatch()],
            |[x, stored], tracked| {
                let kept = keep(x, stored);
                let (y, kept) = (kept.forward(None, onto), kept.for_backward(tracked));
                (y, move |g, [want_x, want_weight]: [bool; 2], earlier: &mut Earlier<'_>| {
                    let [dx, dweight, _] = kept.backward(g, [want_x, want_weight, false], None, earlier);
                    [dx, dweight]
                })
            },
        ),
        Some(bias) => {
            let inputs = [x.into_dispatch(), stored.into_dispatch(), bias.stored.into_dispatch()];
            custom_adding(OperatorName::Linear, inputs, |[x, stored, stored_bias], tracked| {
                let kept = keep(x, stored);
                let bias = Weight { stored: Tensor::from_dispatch(stored_bias), ..bias };
                let dtype = bias.stored.dtype();
                let (y, kept) = (kept.forward(Some(bias), onto), kept.for_backward(tracked));
                (y, move |g, wanted, earlier: &mut Earlier<'_>| {
                    kept.backward(g, wanted, Some(Bias { dtype, gradient: None }), earlier)
                })
            })
        }
    }
}

/// The activation of [`dense`] with a bias. On CUDA one kernel makes the gradient of the layer's result and the bias's.
pub fn dense_activated(
    x: Tensor<2>,
    weight: impl Into<Weight>,
    bias: Weight<1>,
    activation: Activation,
    layout: WeightLayout,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    if !on_cuda(&x) {
        return activate(dense(x, weight, Some(bias), layout, arithmetic), activation, Operator::Custom);
    }
    let Weight { stored, cast, packed } = weight.into();
    let inputs = [x.into_dispatch(), stored.into_dispatch(), bias.stored.into_dispatch()];
    custom_adding(OperatorName::Linear, inputs, |[x, stored, stored_bias], tracked| {
        let weight = Weight { stored: Tensor::from_dispatch(stored), cast, packed };
        let kept = Kept::new(Tensor::from_dispatch(x), weight, layout, arithmetic.in_region());
        let bias = Weight { stored: Tensor::from_dispatch(stored_bias), ..bias };
        let dtype = bias.stored.dtype();
        let u = cube(kept.forward(Some(bias), None));
        let (y, kept) = (uncube(kernels::activate(u.clone(), activation)), kept.for_backward(tracked));
        (y, move |g: Tensor<2>, wanted, earlier: &mut Earlier<'_>| {
            let (du, gradient) = kernels::activate_backward_and_sums(&u, cube(g), activation, dtype);
            drop(u);
            let bias = Bias { dtype, gradient: Some(uncube(gradient)) };
            kept.backward(uncube(du), wanted, Some(bias), earlier)
        })
    })
}

/// A layer's bias in backward.
struct Bias {
    dtype: DType,
    /// In its type, where it is known.
    gradient: Option<Tensor<1>>,
}

/// What one call keeps for backward.
struct Kept {
    /// In the compute type, as multiplied; `None` where the weight is frozen.
    x: Option<Tensor<2>>,
    /// In the compute type, or packed.
    weight: Weight,
    layout: WeightLayout,
    arithmetic: Arithmetic,
    /// The types of the gradients.
    x_dtype: DType,
    weight_dtype: DType,
}

impl Kept {
    fn new(x: Tensor<2>, weight: Weight, layout: WeightLayout, arithmetic: Arithmetic) -> Self {
        let (x_dtype, weight_dtype) = (x.dtype(), weight.stored.dtype());
        Self {
            x: Some(rounded(x, arithmetic.dtype)),
            weight: weight.kept(arithmetic.dtype),
            layout,
            arithmetic,
            x_dtype,
            weight_dtype,
        }
    }

    fn forward(&self, bias: Option<Weight<1>>, onto: Option<Tensor<2>>) -> Tensor<2> {
        let Arithmetic { dtype, math } = self.arithmetic;
        let x = plain(self.x.clone().expect("there in forward"));
        let weight = self.layout.weight(self.weight.clone().narrow(dtype));
        product_bias(x, weight, bias.map(|bias| bias.narrow(dtype)), onto, dtype, math)
    }

    /// Without x where the weight, the second of the inputs, has no gradient.
    fn for_backward<const N: usize>(self, tracked: [bool; N]) -> Self {
        Self { x: self.x.filter(|_| tracked[1]), ..self }
    }

    /// dx, dW, and db where the layer has a bias. On CUDA the product that makes dx adds it to what x has `earlier`
    /// from other layers.
    fn backward(
        self,
        g: Tensor<2>,
        [want_x, want_weight, want_bias]: [bool; 3],
        bias: Option<Bias>,
        earlier: &mut Earlier<'_>,
    ) -> InputGradients<3> {
        let Arithmetic { dtype, math } = self.arithmetic;
        let Self { x, weight, layout, x_dtype, weight_dtype, .. } = self;
        let g = rounded(g, dtype);
        let dx = want_x.then(|| {
            let weight = layout.transposed(weight.narrow(dtype));
            let earlier = (x_dtype == dtype && on_cuda(&g)).then(|| earlier(0)).flatten();
            let sum = earlier.map(Tensor::from_dispatch);
            rounded(product_add(sum, plain(g.clone()), weight, dtype, math), x_dtype)
        });
        let dbias = bias
            .filter(|_| want_bias)
            .map(|Bias { dtype, gradient }| gradient.unwrap_or_else(|| column_sums(&g, dtype)));
        let dweight = x.filter(|_| want_weight).map(|x| {
            let (lhs, rhs) = layout.gradient(x, g);
            product(lhs, rhs, weight_dtype, math)
        });
        [dx.map(Tensor::into_dispatch), dweight.map(Tensor::into_dispatch), dbias.map(Tensor::into_dispatch)]
    }
}

/// Σ over tokens of g [tokens, outputs], added in fp32, as `dtype`.
pub fn column_sums(g: &Tensor<2>, dtype: DType) -> Tensor<1> {
    if on_cuda(g) {
        return uncube(columns::column_sums(&cube(g.clone()), dtype));
    }
    let g = wide(g.clone());
    rounded(cpu::sums(g.clone()).unwrap_or_else(|| g.sum_dim(0).squeeze_dim(0)), dtype)
}
