//! Weights in 4 bits, as [`cpu_kernels::nf4`] packs them: the tensors that carry the packed bytes, and the numbers that
//! products read.
//!
//! A tensor of packed weights has the type that parameters are stored in, but its bits are not numbers of that type, so it
//! is only moved. Its shape is [1, [`carriers`]].

pub mod kernel;

use burn::tensor::{DType, Tensor, TensorData};
use burn_flex::FlexTensor;
use cpu_kernels::nf4::Packing;

use super::backend::{cube, flex, on_cuda, uncube, unflex};
use crate::device::elements::{round, widen};
use crate::ops::slices;

/// Numbers of `dtype` that carry a packed weight of this shape.
pub fn carriers([rows, columns]: [usize; 2], dtype: DType) -> usize {
    Packing::of(rows * columns).bytes().div_ceil(dtype.size())
}

/// Packs the elements of `dtype` of a weight of this shape.
pub fn pack(elements: &[u8], shape: [usize; 2], dtype: DType) -> TensorData {
    let packing = Packing::of(shape.iter().product());
    let carriers = carriers(shape, dtype);
    let mut packed = vec![0; carriers * dtype.size()];
    packing.pack(elements, &mut packed[..packing.bytes()], |part, numbers| widen(dtype, part, numbers));
    TensorData::from_bytes_vec(packed, [1, carriers], dtype)
}

/// The inverse of [`pack`], as `dtype`.
pub fn unpack_data(packed: &[u8], shape: [usize; 2], dtype: DType) -> TensorData {
    let elements = shape.iter().product();
    let packing = Packing::of(elements);
    let mut bytes = vec![0; elements * dtype.size()];
    packing.unpack(&packed[..packing.bytes()], &mut bytes, |numbers, part| round(dtype, numbers, part));
    TensorData::from_bytes_vec(bytes, shape, dtype)
}

/// The weight of this shape that a tensor carries, rounded once to `dtype`.
pub fn unpack<const D: usize>(packed: Tensor<D>, shape: [usize; 2], dtype: DType) -> Tensor<D> {
    if on_cuda(&packed) {
        return uncube(kernel::unpack(&cube(packed), shape, dtype));
    }
    let packed = slices::contiguous(flex(packed));
    unflex(FlexTensor::from_data(unpack_data(packed.bytes(), shape, dtype)))
}
