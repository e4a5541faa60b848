//! Weights of 4 bits: the numbers of their codes, and a linear layer of them with an adapter, against the CPU.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use runner::common::{Compute, DeviceId};
use runner::ops::dense::{Arithmetic, Layer, Weight, WeightLayout};
use runner::ops::lora::{LowRank, lora};
use runner::ops::nf4;

use crate::on_gpu;

/// Values between -1 and 1 without a pattern.
fn values(seed: usize, shape: [usize; 2]) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    (0..shape[0] * shape[1]).map(value).collect()
}

fn tensor(device: &Device, seed: usize, shape: [usize; 2], dtype: DType) -> Tensor<2> {
    let wide = Tensor::<2>::from_data(TensorData::new(values(seed, shape), shape), (device, DType::F32));
    wide.cast(FloatDType::from(dtype))
}

/// A weight whose codes are carried by numbers of this type.
fn packed(device: &Device, shape: [usize; 2], dtype: DType) -> Tensor<2> {
    let bytes = TensorData::new(values(4, shape), shape).convert_dtype(dtype);
    Tensor::from_data(nf4::pack(bytes.as_bytes(), shape, dtype), (device, dtype))
}

fn list(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Weights that end within a block of codes, and some that have more than 256 blocks.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn codes_give_the_cpus_numbers() {
    on_gpu(|_, checks| {
        for shape in [[1, 64], [7, 9], [70, 45], [300, 401], [1024, 640]] {
            for carrier in [DType::F32, DType::BF16] {
                for dtype in [DType::F32, DType::BF16, DType::F16] {
                    let of = |device: DeviceId| {
                        list(nf4::unpack(packed(&device.burn(), shape, carrier), shape, dtype))
                    };
                    let name = format!("{shape:?} in {carrier:?} as {dtype:?}");
                    checks.verdict(&name, of(DeviceId::Cuda(0)) == of(DeviceId::Cpu), "every number");
                }
            }
        }
    });
}

/// y, dx, dA and dB.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_low_rank_layer_beside_codes_equals_the_cpus() {
    on_gpu(|_, checks| {
        for layout in [WeightLayout::InOut, WeightLayout::OutIn] {
            for (dtype, allowed) in [(DType::F32, 2e-5), (DType::BF16, 2e-2), (DType::F16, 5e-3)] {
                let of = |id: DeviceId| {
                    let device = id.burn();
                    let [x, a, b] = [(1, [37, 70]), (2, [5, 70]), (3, [45, 5])]
                        .map(|(seed, shape)| tensor(&device, seed, shape, dtype).autodiff().require_grad());
                    let shape = layout.shape(70, 45);
                    let stored = packed(&device, shape, dtype).autodiff();
                    let weight = Weight { packed: Some(shape), ..stored.into() };
                    let arithmetic = Arithmetic { dtype, ..Arithmetic::of(Compute::Fp32) };
                    let layer = Layer { weight, bias: None, layout, arithmetic };
                    let (low_a, low_b) = (a.clone().into(), b.clone().into());
                    let y = lora(x.clone(), layer, LowRank { a: low_a, b: low_b, scale: 2.0, dropout: None });
                    let mut out = vec![list(y.clone().inner())];
                    let upstream = tensor(&device, 6, [37, 45], dtype).autodiff();
                    let mut gradients = (y * upstream).sum().backward();
                    out.extend([x, a, b].map(|t| list(t.grad_remove(&mut gradients).expect("tracked"))));
                    out
                };
                let (ours, expected) = (of(DeviceId::Cuda(0)), of(DeviceId::Cpu));
                for (what, (ours, expected)) in ["y", "dx", "dA", "dB"].iter().zip(ours.iter().zip(&expected))
                {
                    let largest = expected.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
                    let far = ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    checks.below(&format!("{what} {layout:?} {dtype:?}"), far / largest, allowed);
                }
            }
        }
    });
}
