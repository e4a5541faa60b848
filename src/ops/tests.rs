//! Every operator with hand-written backward against the same formula differentiated by Burn.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{DType, Device, Tensor};

use super::activation::{Activation, activate, formula};
use super::dense::{Arithmetic, WeightLayout, dense};
use super::embedding::{Ids, embedding, embedding_of_part};
use super::norm::{Terms, norm};
use super::product::Fp32Math;
use super::rope::{Pairs, Rotation, Scaling, rope};
use super::testing::{assert_close, random};
use super::{Operator, wide};

const EXACT: Arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The result of `f` and the gradients of its inputs under a random gradient of the result.
fn gradients<const D: usize, const N: usize>(
    inputs: [Tensor<D>; N],
    f: impl Fn([Tensor<D>; N]) -> Tensor<2>,
) -> Vec<Vec<f64>> {
    let inputs = inputs.map(|t| t.detach().require_grad());
    let y = f(inputs.clone());
    let upstream = random(y.dims(), 99).inner().autodiff();
    let mut out = vec![list(y.clone().inner())];
    let mut gradients = (wide(y) * upstream).sum().backward();
    out.extend(inputs.into_iter().map(|t| list(t.grad_remove(&mut gradients).expect("tracked"))));
    out
}

fn assert_all_close(ours: &[Vec<f64>], reference: &[Vec<f64>], allowed: f64) {
    assert_eq!(ours.len(), reference.len());
    for (ours, reference) in ours.iter().zip(reference) {
        assert_close(ours, reference, allowed);
    }
}

#[test]
fn norms() {
    let inputs = || [random([5, 24], 1), random([5, 24], 2) * 0.5 + 1.0, random([5, 24], 3)];
    let run = |operator| {
        let rms = gradients(inputs(), |[x, w, b]| {
            // The same rank for all inputs: weights are row 0.
            norm(x, w.narrow(0, 0, 1).squeeze_dim(0), None, 1e-6, DType::F32, operator) + b
        });
        let layer = gradients(inputs(), |[x, w, b]| {
            let row = |t: Tensor<2>| t.narrow(0, 0, 1).squeeze_dim::<1>(0);
            norm(x, row(w), Some(row(b)), 1e-5, DType::F32, operator)
        });
        [rms, layer].concat()
    };
    assert_all_close(&run(Operator::Custom), &run(Operator::Plain), 1e-5);
}

/// Heads that are normalised each by itself, with 1 more than the weight, against the definition in f64 and the norm of the
/// heads as rows.
#[test]
fn norms_of_heads_with_one_more_than_the_weight() {
    let (tokens, heads, columns) = (7, 3, 10);
    for (plus_one, biased) in [(false, false), (true, false), (true, true)] {
        let terms = Terms { epsilon: 1e-3, plus_one };
        let inputs =
            || [random([tokens, heads * columns], 1), random([1, columns], 2), random([1, columns], 3)];
        let run = |operator, rows: Option<[usize; 2]>| {
            gradients(inputs(), |[x, w, b]| {
                let bias = biased.then(|| b.clone().squeeze_dim::<1>(0));
                let x = rows.map_or(x.clone(), |rows| x.reshape(rows));
                let y = norm(x, w.squeeze_dim(0), bias, terms, DType::F32, operator);
                // What every input is read by.
                y.reshape([tokens, heads * columns]) + b.sum().reshape([1, 1])
            })
        };
        let ours = run(Operator::Custom, None);
        assert_all_close(&ours, &run(Operator::Plain, None), 1e-5);
        assert_eq!(ours, run(Operator::Custom, Some([tokens * heads, columns])));
        let [x, w, b] = inputs().map(list);
        let one = if plus_one { 1.0 } else { 0.0 };
        let shift: f64 = b.iter().sum();
        let exact: Vec<f64> = x
            .chunks(columns)
            .flat_map(|x| {
                let n = columns as f64;
                let mean = if biased { x.iter().sum::<f64>() / n } else { 0.0 };
                let r = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-3).sqrt();
                let y = |j: usize| (x[j] - mean) * r * (w[j] + one) + if biased { b[j] } else { 0.0 } + shift;
                (0..columns).map(y).collect::<Vec<_>>()
            })
            .collect();
        assert_close(&ours[0], &exact, 1e-6);
    }
}

/// In fp32 by the kernels, in fewer bits and in fp64 by Burn's operators.
#[test]
fn activations() {
    for activation in Activation::ALL {
        let run = |operator| gradients([random([5, 24], 1) * 2.0], |[x]| activate(x, activation, operator));
        let plain = run(Operator::Plain);
        assert_all_close(&run(Operator::Custom), &plain, 2e-6);
        for (dtype, allowed) in [(DType::F64, 2e-6), (DType::BF16, 2e-2), (DType::F16, 2e-3)] {
            let cast = gradients([random([5, 24], 1) * 2.0], |[x]| {
                let x = x.cast(burn::tensor::FloatDType::from(dtype));
                activate(x, activation, Operator::Custom).cast(burn::tensor::FloatDType::F32)
            });
            assert_all_close(&cast, &plain, allowed);
        }
        let x = list(random([5, 24], 1) * 2.0);
        let exact: Vec<f64> = x.iter().map(|x| formula(activation, *x).0).collect();
        assert_close(&plain[0], &exact, 1e-6);
    }
}

#[test]
fn rotary_positions() {
    let device = Device::flex();
    let rotation = Rotation::new(32, Pairs::halves(8), 1e4, &device);
    let positions = Ids::new(vec![0, 1, 2, 31, 7], &device);
    let run = |operator| gradients([random([5, 24], 1)], |[x]| rope(x, &rotation, &positions, operator));
    assert_all_close(&run(Operator::Custom), &run(Operator::Plain), 1e-5);
}

/// A part of a head, turned by scaled frequencies with a factor of cosine and sine, which depend on the longest sequence.
#[test]
fn scaled_rotary_positions() {
    let device = Device::flex();
    let (short, long) = (vec![1.0, 1.5], vec![2.0, 8.0]);
    let scaling = || Scaling::LongRope {
        short_factor: short.clone(),
        long_factor: long.clone(),
        original: 8,
        attention_factor: 1.25,
    };
    let x = [0.5, -1.0, 2.0, 3.0, 7.0, -2.0];
    for neighbours in [false, true] {
        let pairs = Pairs { head_dim: 6, dimension: 4, neighbours };
        let rotation = Rotation::scaled(16, pairs, 100.0, scaling(), &device);
        // The same rotation for a long, a short and a long sequence.
        for (longest, factors) in [(12, &long), (8, &short), (9, &long)] {
            let positions = vec![longest - 1, 3];
            let ids = Ids::new(positions.clone(), &device);
            let mut exact = Vec::new();
            for position in positions {
                let mut y = x;
                for (pair, factor) in factors.iter().enumerate() {
                    let angle = f64::from(position) / (f64::from(*factor) * 10f64.powi(pair as i32));
                    let (i, j) = if neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + 2) };
                    y[i] = 1.25 * (x[i] * angle.cos() - x[j] * angle.sin());
                    y[j] = 1.25 * (x[j] * angle.cos() + x[i] * angle.sin());
                }
                exact.extend(y);
            }
            let input = || Tensor::<2>::from_floats([x.map(|x| x as f32); 2], &device);
            for operator in [Operator::Custom, Operator::Plain] {
                assert_close(&list(rope(input(), &rotation, &ids, operator)), &exact, 1e-6);
            }
            let run = |operator| gradients([input().autodiff()], |[x]| rope(x, &rotation, &ids, operator));
            assert_all_close(&run(Operator::Custom), &run(Operator::Plain), 1e-6);
        }
    }
}

#[test]
fn rope_of_a_part_of_each_head() {
    let device = Device::flex();
    let positions = Ids::new(vec![0, 1, 2, 31, 7], &device);
    for neighbours in [false, true] {
        let rotation = Rotation::new(32, Pairs { head_dim: 12, dimension: 8, neighbours }, 1e4, &device);
        let run = |operator| gradients([random([5, 24], 1)], |[x]| rope(x, &rotation, &positions, operator));
        assert_all_close(&run(Operator::Custom), &run(Operator::Plain), 1e-5);
    }
    let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], &device);
    let at_three = Ids::new(vec![3], &device);
    let pairs = Pairs { head_dim: 6, dimension: 4, neighbours: true };
    let (c, s) = ([3f64.cos(), 0.3f64.cos()], [3f64.sin(), 0.3f64.sin()]);
    // Pairs (0, 1) and (2, 3) turned by 3 and 3/√100; two numbers stay.
    let expected =
        [c[0] - 2.0 * s[0], 2.0 * c[0] + s[0], 3.0 * c[1] - 4.0 * s[1], 4.0 * c[1] + 3.0 * s[1], 5.0, 6.0];
    for operator in [Operator::Custom, Operator::Plain] {
        let rotation = Rotation::new(8, pairs, 100.0, &device);
        assert_close(&list(rope(x.clone(), &rotation, &at_three, operator)), &expected, 1e-6);
    }
}

#[test]
fn rope_keeps_lengths_and_turns_by_the_position() {
    let device = Device::flex();
    let x = Tensor::<2>::from_floats([[1.0, 2.0, 0.0, 0.0]], &device);
    let positions = Ids::new(vec![3], &device);
    let y = list(rope(x, &Rotation::new(8, Pairs::halves(4), 100.0, &device), &positions, Operator::Custom));
    // Pairs (0, 2) and (1, 3) turned by 3 and 3/√100.
    let expected = [3f64.cos(), 2.0 * 0.3f64.cos(), 3f64.sin(), 2.0 * 0.3f64.sin()];
    assert_close(&y, &expected, 1e-6);
}

#[test]
fn dense_layers_in_both_layouts() {
    for layout in [WeightLayout::InOut, WeightLayout::OutIn] {
        let weight = if layout == WeightLayout::InOut { [12, 7] } else { [7, 12] };
        let inputs = || [random([5, 12], 1), random(weight, 2), random([1, 7], 3)];
        let ours =
            gradients(inputs(), |[x, w, b]| dense(x, w, Some(b.squeeze_dim::<1>(0).into()), layout, EXACT));
        let plain = gradients(inputs(), |[x, w, b]| {
            x.matmul(if layout == WeightLayout::InOut { w } else { w.transpose() }) + b
        });
        assert_all_close(&ours, &plain, 1e-5);
    }
}

#[test]
fn a_dense_layer_under_autocast_gives_fp32_gradients_of_rounded_operands() {
    let arithmetic = Arithmetic { dtype: DType::BF16, math: Fp32Math::Exact };
    let inputs = || [random([5, 12], 1), random([7, 12], 2)];
    let ours = gradients(inputs(), |[x, w]| {
        let y = dense(x, w, None, WeightLayout::OutIn, arithmetic);
        assert_eq!(y.dtype(), DType::BF16);
        y
    });
    let plain = gradients(inputs(), |[x, w]| x.matmul(w.transpose()));
    // bf16 rounds to 1/256.
    assert_all_close(&ours, &plain, 2e-2);
}

#[test]
fn embedding_sums_the_gradients_of_equal_tokens() {
    let ids = Ids::new(vec![3, 0, 3, 2], &Device::flex());
    let ours = gradients([random([5, 6], 1)], |[w]| embedding(w, &ids, DType::F32));
    let plain = gradients([random([5, 6], 1)], |[w]| w.select(0, ids.ids.clone()));
    assert_all_close(&ours, &plain, 1e-6);
}

/// PyTorch's `padding_idx`; of a part of the table too.
#[test]
fn a_padding_token_gives_its_row_no_gradient() {
    let ids = |padding| Ids::new(vec![3, 0, 3, 2], &Device::flex()).padded_with(padding);
    let whole = |padding| gradients([random([4, 6], 1)], |[w]| embedding(w, &ids(padding), DType::F32));
    let part = |padding| {
        gradients([random([2, 6], 1)], |[w]| embedding_of_part(w, &ids(padding), [1, 2], DType::F32))
    };
    for (of, first) in [(&whole as &dyn Fn(Option<usize>) -> _, 0), (&part, 2)] {
        let (plain, padded): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (of(None), of(Some(3)));
        assert_eq!(plain[0], padded[0], "the same values");
        for (i, (a, b)) in plain[1].iter().zip(&padded[1]).enumerate() {
            let row = first + i / 6;
            assert!(if row == 3 { *a != 0.0 && *b == 0.0 } else { a == b }, "row {row}: {a} {b}");
        }
    }
}

/// A kernel would read whatever lies behind the table.
#[test]
fn ids_beyond_a_table_are_refused_on_the_host() {
    let refused = |run: &dyn Fn(&Ids)| {
        let of = |ids: Vec<i32>| {
            let ids = Ids::new(ids, &Device::flex());
            catch_unwind(AssertUnwindSafe(|| run(&ids))).map_err(|panic| *panic.downcast::<String>().unwrap())
        };
        assert_eq!(of(vec![0, 4]), Ok(()));
        assert!(of(vec![0, 5]).unwrap_err().starts_with("id 5 is beyond the 5 rows of"));
        assert!(of(vec![-1, 0]).unwrap_err().starts_with("id -1 is beyond the 5 rows of"));
    };
    refused(&|ids| drop(embedding(random([5, 6], 1), ids, DType::F32)));
    let rotation = Rotation::new(5, Pairs::halves(4), 1e4, &Device::flex());
    for operator in [Operator::Custom, Operator::Plain] {
        refused(&|positions| drop(rope(random([2, 8], 1), &rotation, positions, operator)));
    }
}
