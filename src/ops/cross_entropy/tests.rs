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
    let whole = run(|h, weight, labels| composed(h, weight, labels, 7.0, EXACT.into()));
    for (chunk, sum) in [(64, usize::MAX), (150, 40), (64, 40), (1, 1)] {
        let ours = run(|h, weight, labels| {
            chunked(
                h,
                weight.into(),
                (labels, 7.0),
                (EXACT.into(), false),
                [chunk, sum],
                &ProcessGroup::alone(),
            )
        });
        for (ours, whole) in ours.iter().zip(&whole) {
            assert_close(ours, whole, 2e-6);
        }
    }
}

/// Scaled and capped logits, in chunks and whole, against the definition in f64, with its gradients by finite differences.
#[test]
fn scaled_and_capped_logits_equal_the_definition() {
    for (scale, soft_cap) in [(0.125, None), (1.0, Some(3.0)), (0.7, Some(2.0))] {
        let head = HeadArithmetic { arithmetic: EXACT, logits: Logits { scale, soft_cap } };
        let whole = run(|h, weight, labels| composed(h, weight, labels, 7.0, head));
        for (chunk, sum) in [(64, usize::MAX), (150, 40), (1, 1)] {
            let ours = run(|h, weight, labels| {
                chunked(h, weight.into(), (labels, 7.0), (head, false), [chunk, sum], &ProcessGroup::alone())
            });
            for (ours, whole) in ours.iter().zip(&whole) {
                assert_close(ours, whole, 3e-6);
            }
        }
        let by_definition = |h: &[f64], weight: &[f64]| -> f64 {
            let labels = [0, 63, 64, -100, 127, 128, 149, 5, -100];
            let loss = |(row, label): (&[f64], i64)| {
                let logit = |w: &[f64]| {
                    let z = scale * row.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
                    soft_cap.map_or(z, |cap| cap * (z / cap).tanh())
                };
                let logits: Vec<f64> = weight.chunks(16).map(logit).collect();
                let lse = logits.iter().map(|x| x.exp()).sum::<f64>().ln();
                usize::try_from(label).map_or(0.0, |label| lse - logits[label])
            };
            h.chunks(16).zip(labels).map(loss).sum::<f64>() / 7.0
        };
        let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect::<Vec<_>>();
        let (h, weight) = (list(random([9, 16], 1)), list(random([150, 16], 2)));
        assert_close(&whole[0], &[by_definition(&h, &weight)], 1e-6);
        for (input, places) in [(0, [0, 37, 20, 143]), (1, [0, 63 * 16 + 5, 64 * 16, 2399])] {
            for place in places {
                let moved = |by: f64| {
                    let mut inputs = [h.clone(), weight.clone()];
                    inputs[input][place] += by;
                    by_definition(&inputs[0], &inputs[1])
                };
                let slope = 3.0 * (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let gradient = whole[1 + input][place];
                assert!((gradient - slope).abs() < 1e-5 * slope.abs().max(0.01), "{gradient} {slope}");
            }
        }
        let tensors = [(h.clone(), [9, 16]), (weight.clone(), [150, 16])].map(|(values, shape)| {
            let data = burn::tensor::TensorData::new(values, shape);
            Tensor::<2>::from_data(data, (&Device::flex(), DType::F32))
        });
        let [h_tensor, weight_tensor] = tensors;
        let labels = Tensor::<1, Int>::from_ints([0, 63, 64, -100, 127, 128, 149, 5, -100], &Device::flex());
        let found = evaluate(h_tensor, weight_tensor, &labels, head, &ProcessGroup::alone());
        let found: Vec<f64> = found.into_data().iter::<f64>().collect();
        assert!((found[0] - 7.0 * by_definition(&h, &weight)).abs() < 1e-4, "{found:?}");
    }
}
