//! DoRA against its definition.

use super::*;
use crate::ops::dense::Arithmetic;
use crate::ops::testing::{assert_close, random};
use crate::ops::{narrow, nf4};

const TOKENS: usize = 5;
const INPUTS: usize = 11;
const OUTPUTS: usize = 7;
const SCALE: f64 = 1.75;

/// Values that few bits have too.
fn drawn(shape: [usize; 2], seed: u64) -> Tensor<2> {
    narrow(narrow(random::<2>(shape, seed).inner(), DType::BF16), DType::F32)
}

fn list(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// y, dx, dA, dB and dm by loops in fp64: n is a constant.
fn by_definition(drawn: &[Vec<f64>; 6], bias: &[f64], mask: &[f64], rank: usize) -> [Vec<f64>; 5] {
    let [x, weight, a, b, m, g] = drawn;
    let (mut y, mut dx) = (vec![0.0; TOKENS * OUTPUTS], vec![0.0; TOKENS * INPUTS]);
    let (mut da, mut db, mut dm) = (vec![0.0; a.len()], vec![0.0; b.len()], vec![0.0; OUTPUTS]);
    for o in 0..OUTPUTS {
        let v: Vec<f64> = (0..INPUTS)
            .map(|i| {
                let low: f64 = (0..rank).map(|r| b[o * rank + r] * a[r * INPUTS + i]).sum();
                weight[o * INPUTS + i] + SCALE * low
            })
            .collect();
        let n = v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let c = m[o] / n;
        for t in 0..TOKENS {
            let x = &x[t * INPUTS..][..INPUTS];
            let mask = &mask[t * INPUTS..][..INPUTS];
            let g = g[t * OUTPUTS + o];
            let z: f64 = (0..INPUTS).map(|i| x[i] * mask[i] * v[i]).sum();
            let rest: f64 = (0..INPUTS).map(|i| x[i] * (1.0 - mask[i]) * weight[o * INPUTS + i]).sum();
            y[t * OUTPUTS + o] = rest + c * z + bias[o];
            dm[o] += g * z / n;
            for i in 0..INPUTS {
                dx[t * INPUTS + i] += g * (c * mask[i] * v[i] + (1.0 - mask[i]) * weight[o * INPUTS + i]);
                for r in 0..rank {
                    da[r * INPUTS + i] += g * c * SCALE * b[o * rank + r] * x[i] * mask[i];
                    db[o * rank + r] += g * c * SCALE * a[r * INPUTS + i] * x[i] * mask[i];
                }
            }
        }
    }
    [y, dx, da, db, dm]
}

/// The weight as it is stored, and its elements [outputs, inputs] in fp64: of a packed one those that 4 bits hold.
fn stored(weight: Tensor<2>, layout: WeightLayout, packs: bool) -> (Weight, Vec<f64>) {
    let swap = |tensor: Tensor<2>| if layout == WeightLayout::OutIn { tensor } else { tensor.transpose() };
    if !packs {
        return (Weight::from(swap(weight.clone()).autodiff()), list(weight));
    }
    let (shape, device) = (layout.shape(INPUTS, OUTPUTS), weight.device());
    let elements = swap(weight).into_data();
    let codes = nf4::pack(elements.as_bytes(), shape, DType::F32);
    let numbers = Tensor::<2>::from_data(nf4::unpack_data(codes.as_bytes(), shape, DType::F32), &device);
    let carried = Tensor::<2>::from_data(codes, &device).autodiff();
    (Weight { packed: Some(shape), ..Weight::from(carried) }, list(swap(numbers)))
}

/// Also of QLoRA's weights in 4 bits, whose numbers are W.
#[test]
fn dora_equals_its_definition_with_and_without_dropout() {
    for (rank, layout, rate, packs) in [
        (3, WeightLayout::OutIn, 0.0, false),
        (3, WeightLayout::InOut, 0.0, false),
        (1, WeightLayout::OutIn, 0.4, false),
        (5, WeightLayout::InOut, 0.4, false),
        (3, WeightLayout::OutIn, 0.0, true),
        (2, WeightLayout::InOut, 0.4, true),
    ] {
        for (dtype, allowed) in [(DType::F32, 1e-5), (DType::BF16, 3e-2)] {
            let shapes = [
                [TOKENS, INPUTS],
                [OUTPUTS, INPUTS],
                [rank, INPUTS],
                [OUTPUTS, rank],
                [1, OUTPUTS],
                [TOKENS, OUTPUTS],
            ];
            let drawn: [Tensor<2>; 6] = std::array::from_fn(|i| drawn(shapes[i], i as u64 + 1));
            let bias: Tensor<1> = random::<1>([OUTPUTS], 9).inner();
            let dropout = Dropout::new(rate, Some(3), 4);
            let ones = Tensor::<2>::ones([TOKENS, INPUTS], &drawn[0].device());
            let mask = list(dropout.map_or(ones.clone(), |dropout| dropout.apply(ones)));
            let mut numbers = drawn.clone().map(list);
            let biases: Vec<f64> = bias.to_data().iter::<f64>().collect();
            let [x, drawn_weight, a, b, m, g] = drawn;
            let weight;
            (weight, numbers[1]) = stored(drawn_weight, layout, packs);
            let lengths = list(first_magnitude(weight.clone(), layout));
            let of_rows = numbers[1].chunks(INPUTS).map(|row| row.iter().map(|w| w * w).sum::<f64>().sqrt());
            assert_close(&lengths, &of_rows.collect::<Vec<_>>(), 1e-6);
            let expected = by_definition(&numbers, &biases, &mask, rank);
            let [x, a, b, m] = [x, a, b, m].map(|tensor| tensor.autodiff().require_grad());
            let layer = Layer {
                weight,
                bias: Some(bias.autodiff().into()),
                layout,
                arithmetic: Arithmetic { dtype, math: Fp32Math::Exact },
            };
            let low_rank = LowRank { a: a.clone().into(), b: b.clone().into(), scale: SCALE, dropout };
            let y = dora(x.clone(), layer, low_rank, m.clone().into());
            let mut found = vec![list(y.clone().inner())];
            let mut gradients = (narrow(y, DType::F32) * g.autodiff()).sum().backward();
            found.extend([x, a, b, m].map(|t| list(t.grad_remove(&mut gradients).expect("tracked"))));
            for (ours, expected) in found.iter().zip(&expected) {
                assert_close(ours, expected, allowed);
            }
        }
    }
}

/// Without an update V is W, whose rows have the lengths that m begins with: the layer computes as it did.
#[test]
fn dora_begins_as_the_layer() {
    let (x, weight) = (drawn([TOKENS, INPUTS], 1), drawn([OUTPUTS, INPUTS], 2));
    let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let layout = WeightLayout::OutIn;
    let layer = || Layer { weight: Weight::from(weight.clone().autodiff()), bias: None, layout, arithmetic };
    let magnitude = first_magnitude(layer().weight, layout).autodiff();
    let low_rank = LowRank {
        a: drawn([2, INPUTS], 3).autodiff().into(),
        b: Tensor::<2>::zeros([OUTPUTS, 2], &x.device()).autodiff().into(),
        scale: SCALE,
        dropout: None,
    };
    let expected = list(layer().forward(x.clone().autodiff()).inner());
    let found = list(dora(x.autodiff(), layer(), low_rank, magnitude.into()).inner());
    assert_close(&found, &expected, 1e-6);
}
