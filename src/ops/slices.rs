//! Tensors as the slices that the kernels of the crate `cpu-kernels` take. They compute in fp32: each operator has its own in
//! `cpu.rs`. Other types are computed by Burn's operators.

use std::mem::MaybeUninit;

use burn::backend::TensorMetadata;
use burn::tensor::{Bytes, DType, Int, Shape, Tensor};
use burn_flex::{FlexTensor, Layout};

use super::backend::{flex, on_cuda, unflex};

/// Elements that one thread takes at a time: 256 KiB of each array.
pub const CHUNK: usize = 1 << 16;

/// Whether the kernels compute with the tensor.
pub fn takes<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && !on_cuda(tensor)
}

/// The tensor with its numbers one after the other and no others around them; itself wherever possible, since a second
/// handle would make a write a copy.
pub fn buffer<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    contiguous(flex(tensor))
}

/// As [`buffer`].
pub fn contiguous(tensor: FlexTensor) -> FlexTensor {
    let whole = tensor.bytes().len() == tensor.shape().num_elements() * tensor.dtype().size();
    match tensor.layout().contiguous_offsets() {
        Some((0, _)) if whole => tensor,
        _ => tensor.to_contiguous(),
    }
}

/// A new tensor of these numbers.
pub fn tensor<const D: usize>(numbers: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    unflex(from_numbers(numbers, Shape::from(shape)))
}

/// A new tensor of these numbers.
pub fn from_numbers(numbers: Vec<f32>, shape: Shape) -> FlexTensor {
    assert_eq!(numbers.len(), shape.num_elements(), "a tensor has as many numbers as its shape says");
    FlexTensor::new(Bytes::from_elems(numbers), Layout::contiguous(shape), DType::F32)
}

/// A new tensor of this shape, which `write` fills.
///
/// # Safety
/// `write` must write every element.
pub unsafe fn filled<const D: usize>(
    shape: [usize; D],
    write: impl FnOnce(&mut [MaybeUninit<f32>]),
) -> Tensor<D> {
    // SAFETY: the caller's.
    tensor(unsafe { cpu_kernels::filled(shape.iter().product(), write) }, shape)
}

/// The numbers of a [`buffer`].
pub fn numbers(tensor: &FlexTensor) -> &[f32] {
    tensor.storage()
}

/// x + y, in the memory of the one that nobody else holds.
pub fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    let (x, y) = (buffer(x), buffer(y));
    let (mut sum, other) = if x.is_unique() { (x, y) } else { (y, x) };
    cpu_kernels::elementwise::add(sum.storage_mut(), numbers(&other));
    unflex(sum)
}

/// Σ x², [1].
pub fn sum_of_squares(x: Tensor<1>) -> Tensor<1> {
    tensor(vec![cpu_kernels::reduce::sum_of_squares(numbers(&buffer(x)))], [1])
}

/// Whole numbers on the host.
pub fn integers<const D: usize>(tensor: &Tensor<D, Int>) -> Vec<i64> {
    tensor.to_data().iter::<i64>().collect()
}

/// The memory of a [`contiguous`] tensor of floats; a copy of its own where somebody else holds it.
pub fn bytes_mut(tensor: &mut FlexTensor) -> &mut [u8] {
    match tensor.dtype() {
        DType::F32 => bytemuck::cast_slice_mut(tensor.storage_mut::<f32>()),
        DType::BF16 => bytemuck::cast_slice_mut(tensor.storage_mut::<half::bf16>()),
        DType::F16 => bytemuck::cast_slice_mut(tensor.storage_mut::<half::f16>()),
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}
