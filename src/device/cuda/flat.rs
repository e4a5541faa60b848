//! Flat tensors with others in them: where many tensors go one after the other, and what is handed out of such a one.

use std::ops::Range;

use burn::tensor::Shape;
use burn_cubecl::tensor::CubeTensor;
use itertools::Itertools;

use super::cast;

/// These elements of a contiguous tensor, as a vector in the same memory. Burn's own `narrow` copies them unless both ends
/// lie at multiples of 512 bytes. Kernels read up to 16 bytes at once: Burn's want them to begin at a multiple of that.
///
/// # Panics
/// When they are not all there.
pub fn part(tensor: &CubeTensor, elements: Range<usize>) -> CubeTensor {
    assert!(tensor.is_contiguous(), "a part of a contiguous tensor, not of {:?}", tensor.meta);
    assert!(elements.end <= tensor.meta.num_elements(), "{elements:?} of {:?}", tensor.meta);
    let bytes = |elements: usize| (elements * tensor.dtype.size()) as u64;
    // Burn rounds the sizes of its buffers up.
    let behind = tensor.handle.size_in_used() - bytes(elements.end);
    let handle = tensor.handle.clone().offset_start(bytes(elements.start)).offset_end(behind);
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    CubeTensor::new_contiguous(client, device, Shape::from([elements.len()]), handle, tensor.dtype)
}

/// Writes each tensor into `flat`, from the element that stands with it on, rounded to the type of `flat`: one launch for
/// up to 80 tensors of a type.
///
/// # Panics
/// When one of them does not fit.
pub fn put(tensors: Vec<(usize, CubeTensor)>, flat: &CubeTensor) {
    let pair = |(first, tensor): (usize, CubeTensor)| {
        let to = part(flat, first..first + tensor.meta.num_elements());
        [burn_cubecl::kernel::into_contiguous(tensor), to]
    };
    let by_type = tensors.into_iter().map(pair).into_group_map_by(|[from, _]| from.dtype);
    // Their order does not matter: none of them lies where another does.
    by_type.into_values().for_each(|pairs| cast(&pairs));
}
