//! [`laid_out`]: many tensors in one flat tensor, and [`part`], which takes one out.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor};

use super::backend::{cube, on_cuda, uncube};
use super::narrow;
use crate::device::{self, cuda};

/// Tensors that begin at multiples of so many elements lie, on CUDA, at multiples of 16 bytes in every type: kernels load as
/// much at once.
pub const ALIGNED: usize = 8;

/// A flat tensor of `length` elements on this device that holds other flat tensors, each from the element beside it on and in
/// their order, with 0 between them. All are outside of autodiff. On CUDA one kernel writes them all.
///
/// # Panics
/// When two of them overlap.
pub fn laid_out(
    length: usize,
    (dtype, device): (DType, &Device),
    mut tensors: Vec<(usize, Tensor<1>)>,
) -> Tensor<1> {
    let mut end = 0;
    for (first, tensor) in &tensors {
        assert!(*first >= end, "a tensor at {first} would lie over one that ends at {end}");
        end = first + tensor.dims()[0];
    }
    let zeros = |count: usize| device::zeros([count], (device, dtype));
    match &*tensors {
        [] => return zeros(length),
        [(0, tensor)] if tensor.dims()[0] == length && tensor.dtype() == dtype => return tensors.remove(0).1,
        [(_, tensor), ..] if on_cuda(tensor) => {
            let has_gaps = tensors.iter().map(|(_, tensor)| tensor.dims()[0]).sum::<usize>() < length;
            let all = if has_gaps { zeros(length) } else { Tensor::empty([length], (device, dtype)) };
            let all = cube(all);
            cuda::put(tensors.into_iter().map(|(first, tensor)| (first, cube(tensor))).collect(), &all);
            return uncube(all);
        }
        _ => {}
    }
    let (mut pieces, mut at) = (Vec::with_capacity(tensors.len()), 0);
    let gap = |count: usize| (count > 0).then(|| zeros(count));
    for (first, tensor) in tensors {
        pieces.extend(gap(first - at));
        at = first + tensor.dims()[0];
        pieces.push(narrow(tensor, dtype));
    }
    pieces.extend(gap(length - at));
    Tensor::cat(pieces, 0)
}

/// These elements of a flat tensor outside of autodiff; on CUDA in its memory.
pub fn part(tensor: &Tensor<1>, elements: Range<usize>) -> Tensor<1> {
    match on_cuda(tensor) {
        true => uncube(cuda::part(&cube(tensor.clone()), elements)),
        false => tensor.clone().narrow(0, elements.start, elements.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tensors have odd sizes and two types, with gaps between and behind them.
    #[test]
    fn tensors_lie_where_they_are_put_with_zeros_between_them() {
        let device = Device::flex();
        let numbers = |values: &[f32]| Tensor::<1>::from_floats(values, &device);
        let pieces = || vec![(0, numbers(&[1.0, 2.0, 3.0])), (4, numbers(&[4.0])), (5, numbers(&[5.0, 6.0]))];
        let list = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
        let all = laid_out(9, (DType::F32, &device), pieces());
        assert_eq!(list(all.clone()), [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
        assert_eq!(list(part(&all, 4..7)), [4.0, 5.0, 6.0]);
        let rounded = laid_out(9, (DType::BF16, &device), pieces());
        assert_eq!((rounded.dtype(), list(rounded.clone())), (DType::BF16, list(all)));
        assert_eq!(list(laid_out(2, (DType::F32, &device), Vec::new())), [0.0, 0.0]);
    }
}
