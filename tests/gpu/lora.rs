//! Dropout and the linear layer with a low-rank adapter, against the CPU.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use runner::ops::dense::{Arithmetic, Layer, Weight, WeightLayout};
use runner::ops::dropout::Dropout;
use runner::ops::lora::{LowRank, lora};
use runner::words::{Compute, DeviceId};

use crate::on_gpu;

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

/// y, dx, dA and dB of 37 tokens, 70 inputs, 45 outputs and rank 5, with dropout and without.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_low_rank_layer_equals_the_cpus() {
    on_gpu(|_, checks| {
        for layout in [WeightLayout::InOut, WeightLayout::OutIn] {
            for rate in [0.0, 0.4] {
                for (dtype, allowed) in [(DType::F32, 2e-5), (DType::BF16, 2e-2), (DType::F16, 5e-3)] {
                    let of = |device: DeviceId| outcome(&device.burn(), layout, rate, dtype);
                    let (ours, expected) = (of(DeviceId::Cuda(0)), of(DeviceId::Cpu));
                    for (what, (ours, expected)) in
                        ["y", "dx", "dA", "dB"].iter().zip(ours.iter().zip(&expected))
                    {
                        let name = format!("{what} {layout:?} dropout {rate} {dtype:?}");
                        checks.below(&name, distance(ours, expected), allowed);
                    }
                }
            }
        }
    });
}

fn outcome(device: &Device, layout: WeightLayout, rate: f64, dtype: DType) -> Vec<Vec<f64>> {
    let [x, a, b] = [(1, [37, 70]), (2, [5, 70]), (3, [45, 5])]
        .map(|(seed, shape)| tensor(device, seed, shape, dtype).autodiff().require_grad());
    let weight = Weight::from(tensor(device, 4, layout.shape(70, 45), dtype).autodiff());
    let bias = tensor(device, 5, [1, 45], dtype).squeeze_dim::<1>(0).autodiff();
    let arithmetic = Arithmetic { dtype, ..Arithmetic::of(Compute::Fp32) };
    let layer = Layer { weight, bias: Some(bias.into()), layout, arithmetic };
    let dropout = Dropout::new(rate, Some(5), 9);
    let y = lora(x.clone(), layer, LowRank { a: a.clone().into(), b: b.clone().into(), scale: 2.0, dropout });
    let mut out = vec![list(y.clone().inner())];
    let mut gradients = (y * tensor(device, 6, [37, 45], dtype).autodiff()).sum().backward();
    out.extend([x, a, b].map(|t| list(t.grad_remove(&mut gradients).expect("tracked"))));
    out
}
