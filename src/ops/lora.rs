//! A linear layer with a low-rank adapter (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models") as one
//! operator with hand-written backward: y = xW + b + s (x̃Aᵀ)Bᵀ, with x̃ = x ⊙ m / (1 − p) under dropout, else x.
//!
//! W and b are frozen: they are no inputs of the graph, so that no backward can make a gradient of them. With h = x̃Aᵀ and
//! g the gradient of y:
//!
//! ```text
//! dB = s gᵀ h          dh = s g B          dA = dhᵀ x̃          dx = g Wᵀ + (dh A) ⊙ m / (1 − p)
//! ```
//!
//! Shapes: x [N, I], W [I, O] or as its layout says, A [r, I], B [O, r], h [N, r], y [N, O], for N tokens.
//!
//! | kept for backward | elements | for |
//! |---|---|---|
//! | x | N I, those of the norm before it: layers that read the same x keep it once | dA |
//! | s h | N r | dB; x̃Aᵀ again would be a product with x |
//! | W, A, B | the parameters; under autocast their casts; a W of 4-bit codes as these (QLoRA) | dx, dh |
//!
//! Numbers of a W in 4 bits are made for forward's product, and once more for backward's, and freed behind it.
//! W needs no activation, and the mask none either: it is drawn again from its seed ([`Dropout`]).

use burn::tensor::{DType, Tensor};

use super::backend::on_cuda;
use super::cost::{Cost, Flops, Moment, Setting, Tensors};
use super::dense::{Arithmetic, Layer, Weight, WeightLayout};
use super::dropout::Dropout;
use super::function::{Earlier, custom_adding};
use super::name::OperatorName;
use super::product::{plain, product, product_add, product_bias, transpose};
use super::rounded;

/// What is added to a linear layer.
pub struct LowRank {
    /// [r, inputs]
    pub a: Weight,
    /// [outputs, r]
    pub b: Weight,
    /// s
    pub scale: f64,
    /// Of the input of A.
    pub dropout: Option<Dropout>,
}

/// y [tokens, outputs] in the compute type, that of the autocast region around the call or else that of the layer.
pub fn lora(x: Tensor<2>, layer: Layer, low_rank: LowRank) -> Tensor<2> {
    let LowRank { a, b, scale, dropout } = low_rank;
    let Layer { weight, bias, layout, arithmetic } = layer;
    let arithmetic = arithmetic.in_region();
    let Arithmetic { dtype, math } = arithmetic;
    let weight = weight.outside().kept(dtype);
    let bias = bias.map(|bias| bias.outside().narrow(dtype));
    let inputs = [x, a.stored, b.stored].map(Tensor::into_dispatch);
    custom_adding(OperatorName::Linear, inputs, |inputs, _| {
        let inputs = inputs.map(Tensor::<2>::from_dispatch);
        let types = inputs.each_ref().map(Tensor::dtype);
        let [x, stored_a, stored_b] = inputs;
        let x = rounded(x, dtype);
        let [a, b] = [(stored_a, a.cast), (stored_b, b.cast)]
            .map(|(stored, cast)| Weight { cast, ..Weight::from(stored) }.narrow(dtype));
        let h = product(plain(dropped(x.clone(), dropout)), transpose(a.clone()), dtype, math) * scale;
        let (lhs, rhs) = (plain(x.clone()), layout.weight(weight.clone().narrow(dtype)));
        let y = match bias {
            None => product(lhs, rhs, dtype, math),
            Some(bias) => product_bias(lhs, rhs, bias, dtype, math),
        };
        let y = product_add(y, plain(h.clone()), transpose(b.clone()), math);
        let kept = Kept { x, h, weight, a, b, scale, dropout, layout, arithmetic };
        (y, move |g: Tensor<2>, wanted, earlier: &mut Earlier<'_>| {
            kept.backward(rounded(g, dtype), wanted, types, earlier).map(|g| g.map(Tensor::into_dispatch))
        })
    })
}

/// x̃
fn dropped(x: Tensor<2>, dropout: Option<Dropout>) -> Tensor<2> {
    match dropout {
        None => x,
        Some(dropout) => dropout.apply(x),
    }
}

/// What one call keeps for backward, in the compute type.
struct Kept {
    x: Tensor<2>,
    /// s x̃Aᵀ
    h: Tensor<2>,
    /// In the compute type, or packed.
    weight: Weight,
    a: Tensor<2>,
    b: Tensor<2>,
    scale: f64,
    dropout: Option<Dropout>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
}

impl Kept {
    /// dx, dA and dB in these types.
    fn backward(
        self,
        g: Tensor<2>,
        [want_x, want_a, want_b]: [bool; 3],
        [x_dtype, a_dtype, b_dtype]: [DType; 3],
        earlier: &mut Earlier<'_>,
    ) -> [Option<Tensor<2>>; 3] {
        let Self { x, h, weight, a, b, scale, dropout, layout, arithmetic: Arithmetic { dtype, math } } =
            self;
        let db = want_b.then(|| product(transpose(g.clone()), plain(h), b_dtype, math));
        let dh = product(plain(g.clone()), plain(b), dtype, math) * scale;
        let da = want_a.then(|| product(transpose(dh.clone()), plain(dropped(x, dropout)), a_dtype, math));
        let dx = want_x.then(|| {
            // Of layers that read the same x.
            let earlier = (x_dtype == dtype && on_cuda(&g)).then(|| earlier(0)).flatten();
            let (lhs, rhs) = (plain(g), layout.transposed(weight.narrow(dtype)));
            let dx = match earlier.map(Tensor::from_dispatch) {
                None => product(lhs, rhs, dtype, math),
                Some(sum) => product_add(sum, lhs, rhs, math),
            };
            let dx = match dropout {
                None => product_add(dx, plain(dh), plain(a), math),
                Some(dropout) => dx + dropout.apply(product(plain(dh), plain(a), dtype, math)),
            };
            rounded(dx, x_dtype)
        });
        [dx, da, db]
    }
}

/// With an adapter of this rank, under `dropout` or not. The walks follow the operator line by line.
pub fn cost(
    setting: &Setting,
    [inputs, outputs]: [u64; 2],
    bias: bool,
    layout: WeightLayout,
    rank: u64,
    dropout: bool,
) -> Cost {
    let weight = setting.linear_weight(layout.shape(inputs, outputs));
    let [a, b] = [[rank, inputs], [outputs, rank]].map(|shape| setting.weight(shape));
    let bias = if bias { outputs } else { 0 };
    let tokens = setting.tokens();
    let [x, y, h] = [inputs, outputs, rank].map(|columns| tokens * columns);
    let [x_bytes, y_bytes, h_bytes] = [inputs, outputs, rank].map(|columns| setting.activation(columns));
    let casts = weight.cast + a.cast + b.cast;
    let wide = setting.stored > setting.element();
    let product = |lhs, rhs, out| setting.product(lhs, rhs, out, false);
    let to_parameter = |lhs, rhs, out| setting.product(lhs, rhs, out, wide);
    // What is drawn and dropped on the CPU is in fp32 first.
    let widened = if !setting.on_cuda() && setting.element() < 4 { setting.wide(inputs) } else { 0 };
    let masked = if dropout { x_bytes + widened } else { 0 };
    // The CPU's products of few bits are made and then added; others add.
    let added = |bytes: u64| if setting.on_cuda() || setting.element() == 4 { 0 } else { bytes };
    let forward = [
        casts + masked + h_bytes + product(x, a.elements, h),
        casts + h_bytes + weight.unpacked + y_bytes + product(x, weight.elements, y),
        casts + h_bytes + y_bytes + added(y_bytes) + product(h, b.elements, y),
    ];
    let [a_gradient, b_gradient] = [a.gradient, b.gradient];
    let moment = |gradients, workspace| Moment::gradients(gradients) + Moment::workspace(workspace);
    let to_dx = if dropout { x_bytes + widened } else { added(x_bytes) };
    let backward = [
        moment(b_gradient, casts + h_bytes + to_parameter(y, h, b.elements)),
        moment(b_gradient, casts + h_bytes + product(y, b.elements, h)),
        moment(a_gradient + b_gradient, casts + h_bytes + masked + to_parameter(h, x, a.elements)),
        moment(
            a_gradient + b_gradient,
            casts + h_bytes + weight.unpacked + x_bytes + product(y, weight.elements, x),
        ),
        moment(a_gradient + b_gradient, casts + h_bytes + x_bytes + to_dx + product(h, a.elements, x)),
    ];
    let parameters = a.elements + b.elements;
    // x is dropped, and W unpacked, once in each direction.
    let again = u32::from(dropout) + u32::from(weight.unpacked > 0);
    let products = |elements: u64| 2.0 * tokens as f64 * elements as f64;
    Cost {
        input: x_bytes,
        output: y_bytes,
        holds_input: true,
        kept: casts + h_bytes,
        parameters: weight.elements + bias + parameters,
        trained: Tensors::matrices(1, [rank, inputs]) + Tensors::matrices(1, [outputs, rank]),
        largest: a.elements.max(b.elements),
        weights: weight.bytes + bias * setting.stored + a.bytes + b.bytes,
        gradients: a_gradient + b_gradient,
        casts: weight.kept_cast + a.kept_cast + b.kept_cast,
        flops: Flops::of_frozen(products(weight.elements)) + Flops::of_products(products(parameters)),
        // Four products and a scale each way besides dx += dh A; and a kernel more where W is in codes.
        launches: [4 + again, 6 + again],
        ..Cost::new(Moment::highest(forward.map(Moment::workspace)), Moment::highest(backward))
    }
    .named(OperatorName::Linear, setting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::narrow;
    use crate::ops::product::Fp32Math;
    use crate::ops::testing::{assert_close, random};

    fn list(tensor: Tensor<2>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    /// 5 tokens, 12 inputs, 7 outputs, rank 3.
    struct Case {
        layout: WeightLayout,
        dtype: DType,
        rate: f64,
    }

    impl Case {
        /// y, dx, dA and dB by the operator, or by Burn's operators and autodiff in the order of the definition.
        fn run(&self, composed: bool) -> Vec<Vec<f64>> {
            let Self { layout, dtype, rate } = *self;
            let drawn = [[5, 12], [3, 12], [7, 3]].into_iter().zip(1..);
            let drawn = drawn.map(|(shape, seed)| {
                // The values of few bits in both.
                let rounded = narrow(narrow(random::<2>(shape, seed).inner(), DType::BF16), DType::F32);
                rounded.autodiff().require_grad()
            });
            let [x, a, b] = drawn.collect::<Vec<_>>().try_into().expect("three");
            let weight = random::<2>(layout.shape(12, 7), 9).inner();
            let weight = narrow(narrow(weight, DType::BF16), DType::F32).autodiff();
            let bias = random::<1>([7], 10).inner();
            let bias = narrow(narrow(bias, DType::BF16), DType::F32).autodiff();
            let dropout = Dropout::new(rate, Some(3), 4);
            let y = if composed {
                let mask = dropped(Tensor::ones_like(&x).inner(), dropout).autodiff();
                let w = if layout == WeightLayout::OutIn { weight.transpose() } else { weight };
                let low = (x.clone() * mask).matmul(a.clone().transpose()).matmul(b.clone().transpose());
                x.clone().matmul(w) + bias.unsqueeze() + low * 2.5
            } else {
                let arithmetic = Arithmetic { dtype, math: Fp32Math::Exact };
                let layer =
                    Layer { weight: Weight::from(weight), bias: Some(bias.into()), layout, arithmetic };
                let low_rank = LowRank { a: a.clone().into(), b: b.clone().into(), scale: 2.5, dropout };
                lora(x.clone(), layer, low_rank)
            };
            let mut out = vec![list(y.clone().inner())];
            let upstream = narrow(random([5, 7], 99).inner(), DType::BF16);
            let mut gradients =
                (narrow(y, DType::F32) * narrow(upstream, DType::F32).autodiff()).sum().backward();
            out.extend([x, a, b].map(|t| list(t.grad_remove(&mut gradients).expect("tracked"))));
            out
        }
    }

    #[test]
    fn the_operator_equals_its_definition_with_and_without_dropout() {
        for layout in [WeightLayout::InOut, WeightLayout::OutIn] {
            for rate in [0.0, 0.4] {
                for (dtype, allowed) in [(DType::F32, 1e-5), (DType::BF16, 2e-2)] {
                    let case = Case { layout, dtype, rate };
                    for (ours, expected) in case.run(false).iter().zip(case.run(true)) {
                        assert_close(ours, &expected, allowed);
                    }
                }
            }
        }
    }

    /// A weight that could be trained is a constant here.
    #[test]
    fn the_weight_and_its_bias_never_get_a_gradient() {
        let weight = random::<2>([7, 12], 1).require_grad();
        let bias = random::<1>([7], 2).require_grad();
        let a = random::<2>([3, 12], 3).require_grad();
        let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
        let layer = Layer {
            weight: weight.clone().into(),
            bias: Some(bias.clone().into()),
            layout: WeightLayout::OutIn,
            arithmetic,
        };
        let b = random([7, 3], 4);
        let low_rank = LowRank { a: a.clone().into(), b: b.into(), scale: 1.0, dropout: None };
        let mut gradients = lora(random([5, 12], 5), layer, low_rank).sum().backward();
        assert!(a.grad_remove(&mut gradients).is_some());
        assert!(weight.grad_remove(&mut gradients).is_none() && bias.grad_remove(&mut gradients).is_none());
    }
}
