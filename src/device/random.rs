//! Random values of a device: who may draw, and the same values in every type.

use std::sync::{Mutex, MutexGuard};

use burn::tensor::{DType, Device, Distribution, Tensor};

use crate::common::locked;

/// Burn has one generator of random numbers a process. While this is held nobody else seeds it or draws from it, so what
/// is drawn follows from the seed, also where tests run side by side.
pub fn drawing() -> MutexGuard<'static, ()> {
    static DRAWING: Mutex<()> = Mutex::new(());
    locked(&DRAWING)
}

/// What is drawn at once: 32 MiB in fp32.
const PIECE: usize = 8 << 20;

/// Random values of a type. They are drawn in fp32 and rounded, since CubeCL's generator orders its numbers by the width of
/// their type: cells that differ in precision begin with the same values.
pub fn random<const D: usize>(shape: [usize; D], spread: Distribution, on: (&Device, DType)) -> Tensor<D> {
    in_pieces(shape.iter().product(), spread, on, PIECE).reshape(shape)
}

/// A piece at a time, so that what is drawn in fp32 needs little memory beside a large tensor. As vectors: Burn aligns the
/// rows of what it makes on CUDA, and kernels would copy them.
fn in_pieces(
    elements: usize,
    spread: Distribution,
    (device, dtype): (&Device, DType),
    piece: usize,
) -> Tensor<1> {
    let drawn = |count| Tensor::<1>::random([count], spread, (device, DType::F32)).cast(dtype);
    if elements <= piece {
        return drawn(elements);
    }
    let empty = Tensor::<1>::empty([elements], (device, dtype));
    (0..elements).step_by(piece).fold(empty, |whole, first| {
        let end = elements.min(first + piece);
        whole.slice_assign(first..end, drawn(end - first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: Distribution = Distribution::Normal(0.5, 2.0);

    fn values(elements: usize, dtype: DType, piece: usize) -> Vec<f32> {
        let _drawing = drawing();
        let device = Device::flex();
        device.seed(7);
        in_pieces(elements, NORMAL, (&device, dtype), piece).cast(DType::F32).into_data().iter().collect()
    }

    /// Also where the last piece is a short one.
    #[test]
    fn every_type_has_the_values_of_fp32_rounded() {
        let exact = values(1001, DType::F32, 300);
        let mean = exact.iter().sum::<f32>() / 1001.0;
        assert!((mean - 0.5).abs() < 0.3, "{mean}");
        assert!(exact.windows(301).all(|pair| pair[0] != pair[300]), "a piece draws its own values");
        for (dtype, digits) in [(DType::BF16, 8), (DType::F16, 11)] {
            for (rounded, exact) in values(1001, dtype, 300).iter().zip(&exact) {
                assert!(
                    (rounded - exact).abs() <= exact.abs() * 0.5_f32.powi(digits) + 1e-7,
                    "{rounded} {exact}"
                );
            }
        }
    }

    #[test]
    fn a_tensor_has_its_shape_and_type() {
        let _drawing = drawing();
        let tensor = random([3, 5], NORMAL, (&Device::flex(), DType::BF16));
        assert_eq!((tensor.dims(), tensor.dtype()), ([3, 5], DType::BF16));
    }
}
