//! Dropout and the linear layer with a low-rank adapter, against the CPU.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use runner::common::{Compute, DeviceId};
use runner::ops::dense::{Arithmetic, Layer, Weight, WeightLayout};
use runner::ops::dropout::Dropout;
use runner::ops::lora::{LoraLayer, LowRank, lies_side_by_side, lora, lora_side_by_side};

use crate::{Checks, on_gpu};

/// Values between -1 and 1 without a pattern.
fn tensor(device: &Device, seed: usize, shape: [usize; 2], dtype: DType) -> Tensor<2> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(value).collect();
    let wide = Tensor::<2>::from_data(TensorData::new(values, shape), (device, DType::F32));
    wide.cast(FloatDType::from(dtype))
}

fn list(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The largest difference over the largest value.
fn distance(ours: &[f64], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
}

/// The same elements are dropped on both devices; 7 · 53 elements are not a multiple of four.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn dropout_draws_the_cpus_mask() {
    on_gpu(|_, checks| {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let dropout = Dropout::new(0.3, Some(5), 9).expect("a rate");
            let of = |device: DeviceId| list(dropout.apply(tensor(&device.burn(), 1, [7, 53], dtype)));
            let (ours, expected) = (of(DeviceId::Cuda(0)), of(DeviceId::Cpu));
            checks.verdict(&format!("dropout {dtype:?}"), ours == expected, "every element");
        }
    });
}

/// y, dx, dA and dB, with dropout and without: of sizes and a rank that kernels take four elements at a time, of odd ones, and
/// of a rank or of so many tokens that products of cuBLASLt take them.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_low_rank_layer_equals_the_cpus() {
    on_gpu(|_, checks| {
        for (layout, [tokens, inputs, outputs, rank]) in [
            (WeightLayout::InOut, [37, 70, 45, 5]),
            (WeightLayout::OutIn, [37, 72, 44, 8]),
            (WeightLayout::OutIn, [37, 130, 258, 16]),
            (WeightLayout::OutIn, [37, 72, 44, 20]),
            (WeightLayout::OutIn, [8209, 131, 259, 16]),
        ] {
            for rate in [0.0, 0.4] {
                for (dtype, allowed) in TYPES {
                    let alone = [Adapted { outputs, has_adapter: true, layer: 9 }];
                    let case = Case { layout, tokens, inputs, rank, rate, dtype, bias: true };
                    let of = |device: DeviceId| case.outcome(&device.burn(), &alone, true);
                    let (ours, expected) = (of(DeviceId::Cuda(0)), of(DeviceId::Cpu));
                    case.compare(checks, &ours, &expected, allowed);
                }
            }
        }
    });
}

/// Three layers as one operator, of which one has no adapter or all have one, against the CPU's, which are one each.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn low_rank_layers_side_by_side_equal_the_cpus() {
    on_gpu(|_, checks| {
        for (tokens, inputs, outputs, rank) in [
            (37, 72, [44, 24, 40], 8),
            (37, 70, [45, 23, 39], 3),
            (37, 1152, [576, 192, 192], 8),
            (8209, 130, [259, 31, 33], 16),
        ] {
            // On the CPU many tokens take long.
            let patterns = if tokens > 37 { 1 } else { 3 };
            for has_adapter in
                [[true, false, true], [true; 3], [false, true, false]].into_iter().take(patterns)
            {
                for (rate, bias) in [(0.0, true), (0.05, false)] {
                    for (dtype, allowed) in TYPES {
                        let layers: Vec<Adapted> = (0..3)
                            .map(|i| Adapted {
                                outputs: outputs[i],
                                has_adapter: has_adapter[i],
                                layer: i as u64,
                            })
                            .collect();
                        let layout = WeightLayout::OutIn;
                        let case = Case { layout, tokens, inputs, rank, rate, dtype, bias };
                        let ours = case.outcome(&DeviceId::Cuda(0).burn(), &layers, true);
                        let expected = case.outcome(&DeviceId::Cpu.burn(), &layers, false);
                        case.compare(checks, &ours, &expected, allowed);
                    }
                }
            }
        }
    });
}

const TYPES: [(DType, f64); 3] = [(DType::F32, 2e-5), (DType::BF16, 2e-2), (DType::F16, 5e-3)];

struct Adapted {
    outputs: usize,
    has_adapter: bool,
    /// Of its mask.
    layer: u64,
}

#[derive(Debug)]
struct Case {
    layout: WeightLayout,
    tokens: usize,
    inputs: usize,
    rank: usize,
    rate: f64,
    dtype: DType,
    bias: bool,
}

impl Case {
    /// By name: y of all layers side by side, dx, and each dA and dB. `as_one`: by one operator.
    fn outcome(&self, device: &Device, layers: &[Adapted], as_one: bool) -> Vec<(String, Vec<f64>)> {
        let Self { layout, tokens, inputs, rank, rate, dtype, bias } = *self;
        let trained = |seed, shape| tensor(device, seed, shape, dtype).autodiff().require_grad();
        let x = trained(1, [tokens, inputs]);
        let (mut parts, mut matrices) = (Vec::new(), Vec::new());
        for (i, Adapted { outputs, has_adapter, layer }) in layers.iter().enumerate() {
            let seed = 10 * (i + 1);
            let weight = Weight::from(tensor(device, seed, layout.shape(inputs, *outputs), dtype).autodiff());
            let bias =
                bias.then(|| tensor(device, seed + 1, [1, *outputs], dtype).squeeze_dim::<1>(0).autodiff());
            let arithmetic = Arithmetic { dtype, ..Arithmetic::of(Compute::Fp32) };
            let frozen = Layer { weight, bias: bias.map(Weight::from), layout, arithmetic };
            let low_rank = has_adapter.then(|| {
                let [a, b] = [(seed + 2, [rank, inputs]), (seed + 3, [*outputs, rank])]
                    .map(|(seed, shape)| trained(seed, shape));
                matrices.extend([(format!("dA of {i}"), a.clone()), (format!("dB of {i}"), b.clone())]);
                let dropout = Dropout::new(rate, Some(5), *layer);
                LowRank { a: a.into(), b: b.into(), scale: 2.0, dropout }
            });
            parts.push(LoraLayer { layer: frozen, low_rank });
        }
        let y = match (as_one, parts.len()) {
            (true, 1) => {
                let LoraLayer { layer, low_rank } = parts.remove(0);
                lora(x.clone(), layer, low_rank.expect("an adapter"))
            }
            (true, _) => {
                assert!(lies_side_by_side(&x, &parts), "{self:?}");
                lora_side_by_side(x.clone(), parts)
            }
            (false, _) => {
                let of = |LoraLayer { layer, low_rank }| match low_rank {
                    None => layer.forward(x.clone()),
                    Some(low_rank) => lora(x.clone(), layer, low_rank),
                };
                Tensor::cat(parts.into_iter().map(of).collect(), 1)
            }
        };
        let mut out = vec![("y".to_owned(), list(y.clone().inner()))];
        let upstream = tensor(device, 6, y.dims(), dtype).autodiff();
        let mut gradients = (y * upstream).sum().backward();
        let tracked = std::iter::once(("dx".to_owned(), x)).chain(matrices);
        out.extend(tracked.map(|(name, t)| (name, list(t.grad_remove(&mut gradients).expect("tracked")))));
        out
    }

    fn compare(
        &self,
        checks: &mut Checks,
        ours: &[(String, Vec<f64>)],
        expected: &[(String, Vec<f64>)],
        allowed: f64,
    ) {
        assert_eq!(ours.len(), expected.len());
        for ((name, ours), (_, expected)) in ours.iter().zip(expected) {
            checks.below(&format!("{name} {self:?}"), distance(ours, expected), allowed);
        }
    }
}
