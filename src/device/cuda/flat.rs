//! Flat tensors that hold other tensors one after the other: taking parts out and writing parts in.

use std::ops::Range;

use burn::tensor::Shape;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::{cast, empty, within};

/// These elements of a contiguous tensor, as a vector in the same memory. Burn's own `narrow` copies them unless both ends
/// lie at multiples of 512 bytes. Kernels read up to 16 bytes at once: Burn's want them to begin at a multiple of that.
///
/// # Panics
/// When they are not all there.
pub fn part(tensor: &CubeTensor, elements: Range<usize>) -> CubeTensor {
    assert!(tensor.is_contiguous(), "a part of a contiguous tensor, not of {:?}", tensor.meta);
    assert!(elements.end <= tensor.meta.num_elements(), "{elements:?} of {:?}", tensor.meta);
    within(tensor, elements.start * tensor.dtype.size(), Shape::from([elements.len()]), tensor.dtype)
}

/// These elements of a contiguous tensor in memory of their own. Burn's operators would compute in place of a [`part`], and
/// keep all of the memory.
///
/// # Panics
/// When they are not all there.
pub fn copied(tensor: &CubeTensor, elements: Range<usize>) -> CubeTensor {
    let copy = empty(tensor, [elements.len()], tensor.dtype);
    put(vec![(0, part(tensor, elements))], &copy);
    copy
}

/// Writes each tensor into `flat`, from the element beside it on, rounded to the type of `flat`: one launch for each 80
/// tensors of a type.
///
/// # Panics
/// When one of them does not fit.
pub fn put(tensors: Vec<(usize, CubeTensor)>, flat: &CubeTensor) {
    let pair = |(first, tensor): (usize, CubeTensor)| {
        let to = part(flat, first..first + tensor.meta.num_elements());
        [into_contiguous(tensor), to]
    };
    cast(&tensors.into_iter().map(pair).collect::<Vec<_>>());
}
