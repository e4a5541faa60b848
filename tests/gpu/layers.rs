//! Layers that share kernels and products on CUDA against the same layers one by one.

use burn::tensor::{DType, FloatDType, Tensor};
use runner::common::Compute;
use runner::device::cuda::Gpu;
use runner::ops::activation::{Activation, activate};
use runner::ops::checkpoint::differentiate;
use runner::ops::dense::{
    Arithmetic, Weight, WeightLayout, dense, dense_activated, dense_onto, dense_side_by_side,
};
use runner::ops::gated_mlp::GatedMlp;
use runner::ops::norm::norm;
use runner::ops::residual::{residual, residual_in_product};
use runner::ops::{Level, Operator};

use crate::reference::{TYPES, error, random};
use crate::{Checks, on_gpu};

const TOKENS: usize = 300;
const INPUTS: usize = 64;
const LAYOUTS: [WeightLayout; 2] = [WeightLayout::InOut, WeightLayout::OutIn];

/// A leaf of the graph.
fn leaf(gpu: &Gpu, shape: [usize; 2], seed: u64, dtype: DType) -> Tensor<2> {
    let device = gpu.burn().autodiff();
    let values = Tensor::<2>::from_data(random(shape, seed), (&device, DType::F32)) * 0.25;
    values.cast(FloatDType::from(dtype)).inner().autodiff().require_grad()
}

fn weight(gpu: &Gpu, outputs: usize, layout: WeightLayout, seed: u64, dtype: DType) -> Tensor<2> {
    let shape = if layout == WeightLayout::InOut { [INPUTS, outputs] } else { [outputs, INPUTS] };
    leaf(gpu, shape, seed, dtype)
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.cast(FloatDType::F32).into_data().iter::<f64>().collect()
}

/// The result, and the gradients of these leaves.
fn outcome(leaves: &[Tensor<2>], run: impl FnOnce() -> Tensor<2>) -> Vec<Vec<f64>> {
    let y = run();
    let g = y.clone().inner();
    let mut found = differentiate(y, g.clone());
    let gradients = leaves.iter().map(|leaf| host(leaf.grad_remove(&mut found).expect("a gradient")));
    std::iter::once(host(g)).chain(gradients).collect()
}

/// As parameters are stored, and the arithmetic: of one type, and under autocast.
fn settings(compute: Compute) -> Vec<(DType, Arithmetic)> {
    let arithmetic = Arithmetic::of(compute);
    let mut settings = vec![(arithmetic.dtype, arithmetic)];
    settings.extend((arithmetic.dtype != DType::F32).then_some((DType::F32, arithmetic)));
    settings
}

fn compare(checks: &mut Checks, name: &str, compute: Compute, ours: &[Vec<f64>], expected: &[Vec<f64>]) {
    // Sums of several parts, which both round in other orders, in units of the root mean square: some units in the
    // last place of the largest values.
    let allowed = match compute {
        Compute::Fp32 => 1e-5,
        Compute::Tf32 => 4e-3,
        Compute::Fp16 => 2e-2,
        Compute::Bf16 => 1.6e-1,
    };
    for (part, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        checks.below(&format!("{name} {compute:?}, part {part}"), error(ours, expected), allowed);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn results_side_by_side() {
    on_gpu(|gpu, checks| {
        let outputs = [96, 32, 32];
        for compute in TYPES {
            for (stored, arithmetic) in settings(compute) {
                for (layout, biased) in
                    LAYOUTS.into_iter().flat_map(|layout| [(layout, true), (layout, false)])
                {
                    let x = leaf(gpu, [TOKENS, INPUTS], 1, arithmetic.dtype);
                    let mut leaves = vec![x.clone()];
                    let layers: [_; 3] = std::array::from_fn(|i| {
                        let weight = weight(gpu, outputs[i], layout, 2 + i as u64, stored);
                        leaves.push(weight.clone());
                        let bias = biased.then(|| leaf(gpu, [1, outputs[i]], 5 + i as u64, stored));
                        leaves.extend(bias.clone());
                        (weight, bias)
                    });
                    let of = |(weight, bias): &(Tensor<2>, Option<Tensor<2>>)| {
                        let bias = bias.clone().map(|bias| bias.squeeze_dim::<1>(0).into());
                        (Weight::from(weight.clone()), bias)
                    };
                    // x is read once more, before and after: gradients are added to what it has.
                    let around = |y: Tensor<2>, x: &Tensor<2>| {
                        Tensor::cat(
                            vec![
                                activate(x.clone(), Activation::GeluTanh, Operator::Custom),
                                y,
                                x.clone() * 2.0,
                            ],
                            1,
                        )
                    };
                    let inner = || activate(x.clone(), Activation::GeluTanh, Operator::Custom);
                    let ours = outcome(&leaves, || {
                        let x = inner();
                        let layers = layers.each_ref().map(of);
                        around(dense_side_by_side(x.clone(), layers, layout, arithmetic), &x)
                    });
                    let expected = outcome(&leaves, || {
                        let x = inner();
                        let one = |layer| {
                            let (weight, bias) = of(layer);
                            dense(x.clone(), weight, bias, layout, arithmetic)
                        };
                        around(Tensor::cat(layers.each_ref().map(one).into(), 1), &x)
                    });
                    let name = format!("side by side, {layout:?} biased {biased} stored {stored:?}");
                    compare(checks, &name, compute, &ours, &expected);
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn activations_behind_a_layer() {
    on_gpu(|gpu, checks| {
        for compute in TYPES {
            for (stored, arithmetic) in settings(compute) {
                for layout in LAYOUTS {
                    let x = leaf(gpu, [TOKENS, INPUTS], 1, arithmetic.dtype);
                    let (weight, bias) =
                        (weight(gpu, 128, layout, 2, stored), leaf(gpu, [1, 128], 3, stored));
                    let flat = || Weight::from(bias.clone().squeeze_dim::<1>(0));
                    let leaves = [x.clone(), weight.clone(), bias.clone()];
                    for activation in Activation::ALL {
                        let ours = outcome(&leaves, || {
                            dense_activated(x.clone(), weight.clone(), flat(), activation, layout, arithmetic)
                        });
                        let expected = outcome(&leaves, || {
                            let u = dense(x.clone(), weight.clone(), Some(flat()), layout, arithmetic);
                            activate(u, activation, Operator::Custom)
                        });
                        let name = format!("{activation:?} behind a layer, {layout:?} stored {stored:?}");
                        compare(checks, &name, compute, &ours, &expected);
                    }
                }
            }
        }
    });
}

/// x + f(x) in one kernel against the sum of two results, of a layer with and without a bias and of SwiGLU.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn products_that_add_the_residual_stream() {
    on_gpu(|gpu, checks| {
        for compute in TYPES {
            for (stored, arithmetic) in settings(compute) {
                for layout in LAYOUTS {
                    // Under autocast the stream has another type than the product, and the sum is a kernel of its own. The
                    // stream is a result, to whose gradient the norm or the layer adds, as in a block.
                    let parts = [1, 6].map(|seed| leaf(gpu, [TOKENS, INPUTS], seed, stored));
                    let stream = || residual(parts[0].clone(), parts[1].clone());
                    let square = |seed| weight(gpu, INPUTS, layout, seed, stored);
                    let (weights, bias) = ([2, 3, 4].map(square), leaf(gpu, [1, INPUTS], 5, stored));
                    let ones = Tensor::<1>::ones([INPUTS], (&gpu.burn(), stored));
                    let normal = |x: &Tensor<2>| {
                        norm(x.clone(), ones.clone(), None, 1e-6, arithmetic.dtype, Operator::Custom)
                    };
                    for (biased, reads_stream) in [(true, false), (false, false), (false, true)] {
                        let mut leaves = [&parts[..], &weights[..1]].concat();
                        leaves.extend(biased.then(|| bias.clone()));
                        let input = |x: &Tensor<2>| if reads_stream { x.clone() } else { normal(x) };
                        let layer = |x: &Tensor<2>, onto: Option<Tensor<2>>| {
                            let bias = biased.then(|| bias.clone().squeeze_dim::<1>(0).into());
                            dense_onto(input(x), weights[0].clone(), bias, layout, arithmetic, onto)
                        };
                        let ours = outcome(&leaves, || {
                            let x = stream();
                            residual_in_product(x.clone(), arithmetic.dtype, |onto| layer(&x, onto))
                        });
                        let expected = outcome(&leaves, || {
                            let x = stream();
                            residual(x.clone(), layer(&x, None))
                        });
                        let of = if reads_stream { "x" } else { "norm(x)" };
                        let name = format!("x + layer({of}), {layout:?} biased {biased} stored {stored:?}");
                        compare(checks, &name, compute, &ours, &expected);
                    }
                    let leaves = [&parts[..], &weights[..]].concat();
                    let gated = |x: &Tensor<2>, onto: Option<Tensor<2>>| {
                        let weights = weights.clone().map(Weight::from);
                        let mlp = GatedMlp::swiglu(layout, Level::Elementwise, arithmetic);
                        mlp.forward_onto(normal(x), weights, onto)
                    };
                    let ours = outcome(&leaves, || {
                        let x = stream();
                        residual_in_product(x.clone(), arithmetic.dtype, |onto| gated(&x, onto))
                    });
                    let expected = outcome(&leaves, || {
                        let x = stream();
                        residual(x.clone(), gated(&x, None))
                    });
                    let name = format!("x + SwiGLU, {layout:?} stored {stored:?}");
                    compare(checks, &name, compute, &ours, &expected);
                }
            }
        }
    });
}
