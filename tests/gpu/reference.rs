//! Tensors that are the same on every device, products in f64, and how far a result is from them.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use burn_cubecl::tensor::CubeTensor;
use runner::common::Compute;
use runner::device::cuda;

pub const TYPES: [Compute; 4] = [Compute::Fp32, Compute::Tf32, Compute::Bf16, Compute::Fp16];

/// Relative rounding of a product whose operands are rounded as `compute` rounds them, with room
/// for the sums.
pub fn tolerance(compute: Compute) -> f64 {
    match compute {
        Compute::Fp32 => 2e-6,
        Compute::Tf32 => 2e-3,
        Compute::Bf16 => 8e-3,
        Compute::Fp16 => 1e-3,
    }
}

pub fn primitive(tensor: Tensor<2>) -> CubeTensor {
    cuda::buffer(tensor)
}

pub fn tensor(primitive: CubeTensor) -> Tensor<2> {
    cuda::tensor(primitive)
}

pub fn host(tensor: Tensor<2>) -> Vec<f64> {
    let data = tensor.cast(FloatDType::F32).into_data();
    data.iter::<f32>().map(f64::from).collect()
}

/// A deterministic matrix, exactly the same on every device: values of N(0, 1) by Box and Muller.
pub fn random(shape: [usize; 2], seed: u64) -> TensorData {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    let values = (0..shape[0] * shape[1])
        .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect::<Vec<_>>();
    TensorData::new(values, shape)
}

pub fn on(device: &Device, data: TensorData, compute: Compute) -> Tensor<2> {
    Tensor::<2>::from_data(data, (device, DType::F32)).cast(float(compute))
}

pub fn float(compute: Compute) -> FloatDType {
    match compute {
        Compute::Fp32 | Compute::Tf32 => FloatDType::F32,
        Compute::Bf16 => FloatDType::BF16,
        Compute::Fp16 => FloatDType::F16,
    }
}

/// The norm of the difference, in norms of what is expected.
pub fn distance(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut got.iter().zip(expected).map(|(a, b)| a - b));
    difference / norm(&mut expected.iter().copied())
}

/// The largest difference from `expected`, in units of its root mean square.
pub fn error(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let scale = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

/// op(a) op(b) in f64, [m, k] times [k, n].
pub fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3], ta: bool, tb: bool) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            let x = if ta { a[l * m + i] } else { a[i * k + l] };
            for j in 0..n {
                c[i * n + j] += x * if tb { b[j * k + l] } else { b[l * n + j] };
            }
        }
    }
    c
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
