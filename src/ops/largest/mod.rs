//! The largest element of each row. On CUDA one kernel of our own: Burn would try variants for seconds.

pub mod kernel;

use burn::tensor::{Int, Tensor};

use super::backend::{cube, on_cuda};
use crate::device::cuda;

/// The place of the largest element of each row of x [rows, columns], outside of autodiff's graph, the first of equals:
/// [rows, 1].
pub fn largest(x: Tensor<2>) -> Tensor<2, Int> {
    match on_cuda(&x) {
        true => cuda::int_tensor(kernel::largest(cube(x))),
        false => x.argmax(1),
    }
}
