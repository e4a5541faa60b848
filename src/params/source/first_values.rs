//! The values that parameters begin with where no file has them.

use std::f64::consts::TAU;

use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Init;
use crate::common::text::fnv1a;
use crate::device;
use crate::ops::dropout::mix;

/// First values of the model's own parameters, from the device's stream.
pub(super) fn random<const D: usize>(
    init: Init,
    shape: [usize; D],
    (device, dtype): (&Device, DType),
) -> Tensor<D> {
    let spread = match init {
        Init::Constant(0.0) => return device::zeros(shape, (device, dtype)),
        // Copied: on CUDA each width and type would have its own kernel to compile.
        Init::Constant(value) => {
            return Tensor::from_data(TensorData::full_dtype(shape, value, dtype), (device, dtype));
        }
        Init::Normal(deviation) => Distribution::Normal(0.0, deviation),
        Init::Uniform(bound) => Distribution::Uniform(-bound, bound),
        Init::RowLengths => unreachable!("computed by the adapter"),
    };
    device::random(shape, spread, (device, dtype))
}

/// First values of an adapter's parameter in a row, which its name and the seed alone decide.
pub(super) fn drawn(name: &str, seed: u32, elements: usize, init: Init) -> TensorData {
    let mut random = ChaCha8Rng::seed_from_u64(mix(fnv1a(name) ^ u64::from(seed)));
    let mut uniform = || random.random::<f64>();
    let mut value = || match init {
        Init::Constant(value) => value,
        Init::Uniform(bound) => (2.0 * uniform() - 1.0) * bound,
        Init::RowLengths => unreachable!("computed by the adapter"),
        // Box and Muller 1958.
        Init::Normal(deviation) => {
            let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
            deviation * radius * (TAU * uniform()).cos()
        }
    };
    let values: Vec<f32> = (0..elements).map(|_| value() as f32).collect();
    TensorData::new(values, [elements])
}
