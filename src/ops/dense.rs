//! The linear layer y = xW (+ b) with hand-written backward: dx = gWᵀ, dW = xᵀg, db = Σ_tokens g.
//!
//! It multiplies in the compute type whatever its inputs are stored in: with fp32 weights and bf16
//! arithmetic (autocast) W is rounded once, in forward, and dW comes out of the product in fp32.

use burn::tensor::{DType, Tensor};

use super::function::{InputGradients, custom};
use super::linear::{Fp32Math, Gradient};
use super::narrow;
use super::product::{plain, product, product_bias, product_bias_gradient, transpose};
use crate::device::dtype;
use crate::recipe::Compute;

/// How a weight matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// [inputs, outputs]: GPT-2's Conv1D.
    InOut,
    /// [outputs, inputs]: `torch.nn.Linear`.
    OutIn,
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
        Self { dtype: dtype(compute), math: compute.fp32_math() }
    }
}

/// y [tokens, outputs] in the compute type.
pub fn dense(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    match bias {
        None => custom([x.into_dispatch(), weight.into_dispatch()], |[x, weight]| {
            let kept = Kept::new(Tensor::from_dispatch(x), Tensor::from_dispatch(weight), layout, arithmetic);
            (kept.forward(None), move |g, [want_x, want_weight]: [bool; 2]| {
                let [dx, dweight, _] = kept.backward(g, [want_x, want_weight, false], None);
                [dx, dweight]
            })
        }),
        Some(bias) => {
            let inputs = [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
            custom(inputs, |[x, weight, bias]| {
                let kept =
                    Kept::new(Tensor::from_dispatch(x), Tensor::from_dispatch(weight), layout, arithmetic);
                let bias = Tensor::<1>::from_dispatch(bias);
                let dtype = bias.dtype();
                (kept.forward(Some(bias)), move |g, wanted| kept.backward(g, wanted, Some(dtype)))
            })
        }
    }
}

/// What one call keeps for backward.
struct Kept {
    /// In the compute type, as multiplied.
    x: Tensor<2>,
    weight: Tensor<2>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
    /// The types of the gradients.
    x_dtype: DType,
    weight_dtype: DType,
}

impl Kept {
    fn new(x: Tensor<2>, weight: Tensor<2>, layout: WeightLayout, arithmetic: Arithmetic) -> Self {
        let (x_dtype, weight_dtype) = (x.dtype(), weight.dtype());
        Self {
            x: narrow(x, arithmetic.dtype),
            weight: narrow(weight, arithmetic.dtype),
            layout,
            arithmetic,
            x_dtype,
            weight_dtype,
        }
    }

    fn forward(&self, bias: Option<Tensor<1>>) -> Tensor<2> {
        let Arithmetic { dtype, math } = self.arithmetic;
        let weight = match self.layout {
            WeightLayout::InOut => plain(self.weight.clone()),
            WeightLayout::OutIn => transpose(self.weight.clone()),
        };
        let x = plain(self.x.clone());
        match bias {
            None => product(x, weight, dtype, math),
            Some(bias) => product_bias(x, weight, narrow(bias, dtype), dtype, math),
        }
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
        let dx = want_x.then(|| {
            let weight = match layout {
                WeightLayout::InOut => transpose(weight),
                WeightLayout::OutIn => plain(weight),
            };
            narrow(product(plain(g.clone()), weight, dtype, math), x_dtype)
        });
        let (lhs, rhs, of) = match layout {
            WeightLayout::InOut => (transpose(x), plain(g), Gradient::Rhs),
            WeightLayout::OutIn => (transpose(g), plain(x), Gradient::Lhs),
        };
        let (dweight, dbias) = match bias.filter(|_| want_bias) {
            Some(dtype) => {
                let (dweight, dbias) = product_bias_gradient(lhs, rhs, of, weight_dtype, math);
                (want_weight.then_some(dweight), Some(narrow(dbias, dtype).into_dispatch()))
            }
            None => (want_weight.then(|| product(lhs, rhs, weight_dtype, math)), None),
        };
        [dx.map(Tensor::into_dispatch), dweight.map(Tensor::into_dispatch), dbias]
    }
}
