//! What the operators' tests share.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::cost::{Cost, Moment};

/// Normal random values in fp32 on the CPU, outside of Burn's shared generator: tests run side by side.
pub fn random<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            ((-2.0 * uniform().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32
        })
        .collect();
    Tensor::<D>::from_data(TensorData::new(values, shape), (&Device::flex(), DType::F32)).autodiff()
}

/// Every difference is within `allowed` of the reference's largest value.
pub fn assert_close(ours: &[f64], reference: &[f64], allowed: f64) {
    assert_eq!(ours.len(), reference.len());
    let scale = reference.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let worst = ours.iter().zip(reference).map(|(a, b)| (a - b).abs()).fold(0.0f64, |m, d| {
        assert!(!d.is_nan(), "a difference is NaN");
        m.max(d)
    });
    assert!(
        scale > 0.0 && worst <= allowed * scale,
        "differs by {worst:e} where the largest value is {scale:e}"
    );
}

/// x and y of 10 bytes, x and 100 bytes kept, 130 at once in forward, 150 in backward.
pub fn operator_cost() -> Cost {
    let moments = Cost::new(Moment::workspace(130), Moment::workspace(150));
    Cost { input: 10, output: 10, holds_input: true, kept: 100, ..moments }
}
