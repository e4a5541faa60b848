//! The operator in chunks against the whole, and what evaluation counts.

use super::*;
use crate::ops::product::Fp32Math;
use crate::ops::testing::{assert_close, random};
use burn::tensor::Device;

const EXACT: Arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };

/// Loss and both gradients; labels on either side of every chunk's edge and tokens not counted.
fn run(loss: impl Fn(Tensor<2>, Tensor<2>, Tensor<1, Int>) -> Tensor<1>) -> [Vec<f64>; 3] {
    let (h, weight) = (random([9, 16], 1).require_grad(), random([150, 16], 2).require_grad());
    let labels = [0, 63, 64, -100, 127, 128, 149, 5, -100];
    let labels = Tensor::<1, Int>::from_ints(labels, &Device::flex());
    let loss = loss(h.clone(), weight.clone(), labels);
    // An upstream gradient that is not 1.
    let mut gradients = (loss.clone() * 3.0).backward();
    let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect();
    [
        loss.inner().into_data().iter::<f64>().collect(),
        list(h.grad_remove(&mut gradients).unwrap()),
        list(weight.grad_remove(&mut gradients).unwrap()),
    ]
}

/// Token 0 has its label's logit largest, token 1 does not, and token 2 is not counted.
#[test]
fn evaluation_counts_the_labels_with_the_largest_logit() {
    let device = Device::flex();
    let h = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &device);
    let weight = Tensor::<2>::from_floats([[0.0, 2.0], [3.0, 1.0], [1.0, 1.0]], &device);
    let labels = Tensor::<1, Int>::from_ints([1, 2, -100], &device);
    let found: Vec<f64> =
        evaluate(h, weight, &labels, EXACT, &ProcessGroup::alone()).into_data().iter::<f64>().collect();
    let loss = |logits: [f64; 3], label: usize| logits.map(f64::exp).iter().sum::<f64>().ln() - logits[label];
    assert_close(&found, &[loss([0.0, 3.0, 1.0], 1) + loss([2.0, 1.0, 1.0], 2), 1.0], 1e-6);
}

#[test]
fn chunks_of_the_vocabulary_give_the_whole_ones_loss_and_gradients() {
    let whole = run(|h, weight, labels| composed(h, weight, labels, 7.0, EXACT));
    for (chunk, sum) in [(64, usize::MAX), (150, 40), (64, 40), (1, 1)] {
        let ours = run(|h, weight, labels| {
            chunked(h, weight.into(), (labels, 7.0), (EXACT, false), [chunk, sum], &ProcessGroup::alone())
        });
        for (ours, whole) in ours.iter().zip(&whole) {
            assert_close(ours, whole, 2e-6);
        }
    }
}
