//! The operator against its definition.

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
            let layer = Layer { weight: Weight::from(weight), bias: Some(bias.into()), layout, arithmetic };
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
