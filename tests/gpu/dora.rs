//! DoRA with a trained bias, against the CPU.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use runner::common::{Compute, DeviceId};
use runner::ops::dense::{Arithmetic, Layer, Weight, WeightLayout};
use runner::ops::dropout::Dropout;
use runner::ops::lora::LowRank;
use runner::ops::lora::dora::{dora, first_magnitude};

use crate::on_gpu;

const TOKENS: usize = 37;

/// Values between -1 and 1 without a pattern.
fn tensor(device: &Device, seed: usize, shape: [usize; 2], dtype: DType) -> Tensor<2> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(value).collect();
    let wide = Tensor::<2>::from_data(TensorData::new(values, shape), (device, DType::F32));
    wide.cast(FloatDType::from(dtype))
}

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The first magnitude, y, dx, dA, dB, dm and db.
fn outcome(
    device: &Device,
    [inputs, outputs, rank]: [usize; 3],
    (layout, rate, dtype): (WeightLayout, f64, DType),
) -> Vec<(&'static str, Vec<f64>)> {
    let trained = |seed, shape| tensor(device, seed, shape, dtype).autodiff().require_grad();
    let weight = Weight::from(tensor(device, 1, layout.shape(inputs, outputs), dtype).autodiff());
    let first = list(first_magnitude(weight.clone(), layout));
    let [x, a, b, m] = [
        trained(2, [TOKENS, inputs]),
        trained(3, [rank, inputs]),
        trained(4, [outputs, rank]),
        trained(5, [1, outputs]),
    ];
    let bias: Tensor<1> = tensor(device, 6, [1, outputs], dtype).squeeze_dim(0);
    let bias = bias.autodiff().require_grad();
    let arithmetic = Arithmetic { dtype, ..Arithmetic::of(Compute::Fp32) };
    let layer = Layer { weight, bias: Some(bias.clone().into()), layout, arithmetic };
    let dropout = Dropout::new(rate, Some(5), 9);
    let low_rank = LowRank { a: a.clone().into(), b: b.clone().into(), scale: 2.0, dropout };
    let y = dora(x.clone(), layer, low_rank, m.clone().into());
    let mut found = vec![("first m", first), ("y", list(y.clone().inner()))];
    let upstream = tensor(device, 7, [TOKENS, outputs], dtype).autodiff();
    let mut gradients = (y * upstream).sum().backward();
    for (name, parameter) in [("dx", x), ("dA", a), ("dB", b), ("dm", m)] {
        found.push((name, list(parameter.grad_remove(&mut gradients).expect("tracked"))));
    }
    found.push(("db", list(bias.grad_remove(&mut gradients).expect("tracked"))));
    found
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn dora_equals_the_cpus() {
    on_gpu(|_, checks| {
        for (sizes, layout, rate) in [
            ([70, 45, 5], WeightLayout::InOut, 0.0),
            ([72, 44, 8], WeightLayout::OutIn, 0.4),
            ([130, 258, 16], WeightLayout::OutIn, 0.0),
            ([72, 44, 20], WeightLayout::InOut, 0.4),
        ] {
            for (dtype, allowed) in [(DType::F32, 2e-5), (DType::BF16, 3e-2), (DType::F16, 1e-2)] {
                let run = |id: DeviceId| outcome(&id.burn(), sizes, (layout, rate, dtype));
                let (ours, expected) = (run(DeviceId::Cuda(0)), run(DeviceId::Cpu));
                for ((what, ours), (_, expected)) in ours.iter().zip(&expected) {
                    let largest = expected.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
                    let far = ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    let name = format!("dora {sizes:?} {layout:?} {rate} {dtype:?}: {what}");
                    checks.below(&name, far / largest, allowed);
                }
            }
        }
    });
}
